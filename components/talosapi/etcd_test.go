package talosapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestOwnErrors: every member tells the alarms of all of them, and those of no member are everyone's.
func TestOwnErrors(t *testing.T) {
	all := []string{
		"memberID:1 alarm:NOSPACE ", "memberID:2  alarm:CORRUPT", "alarm:CORRUPT", "etcdserver: no leader",
	}

	assert.Equal(t, []string{"memberID:2 alarm:CORRUPT", "alarm:CORRUPT", "etcdserver: no leader"}, own(all, 2))
}
