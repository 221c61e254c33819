package components

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/proxmoxvm"
)

// TestKeptUserData: the VM of a node that exists goes on finding its user data where they are.
func TestKeptUserData(t *testing.T) {
	t.Parallel()

	recreated := []string{"nodeName", "fileMode"}
	kept := []string{"nodeName", "fileMode", "sourceRaw", "datastoreId"}

	assert.Equal(t, kept, (&k3sNodeArgs{}).keptUserData())
	assert.Equal(t, recreated, (&k3sNodeArgs{Absent: true}).keptUserData())
	assert.Equal(t, recreated, (&k3sNodeArgs{Replace: true}).keptUserData())
	assert.Equal(t, kept, (&k3sNodeArgs{Replace: true, State: proxmoxvm.State{Replaced: true}}).keptUserData())
}
