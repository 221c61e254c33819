package proxmoxvm

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestReplaceIncomplete: a VM is replaced only when Proxmox VE shows that it is incomplete.
func TestReplaceIncomplete(t *testing.T) {
	assert.Len(t, replaceIncomplete(true), 1)
	assert.Empty(t, replaceIncomplete(false))
}
