package spelling

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	known := []string{"disable", "disable-etcd", "debug"}

	assert.Equal(t, "disable", Nearest("disables", known, 3))
	assert.Equal(t, "disable-etcd", Nearest("disable-etc", known, 3))
	assert.Empty(t, Nearest("disables", known, 1), "the bound is not reached")
	assert.Equal(t, "aa", Nearest("ax", []string{"aa", "ab"}, 2), "the first of two alike")
}
