package vmidentity

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
)

// TestDeleteSuccessor: a VM that a run was cut off while it made is deleted without a look, as nothing is on it;
// another may be a node that the state does not know.
func TestDeleteSuccessor(t *testing.T) {
	p := plantest.ISO(t)
	n := p.Nodes()[0]

	f := Found{
		VM: proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: "pve", Tags: OwnerTags(p), Stopped: true},
		Config: proxmoxapi.VMConfig{
			Disks: map[string]int{n.Disks[0].Interface: 40}, CDROMs: map[string]string{n.CDROM: "local:iso/talos-1.12.4.iso"},
		},
	}

	assert.Equal(t, fmt.Sprintf("A run was interrupted while it created the VM, and the VM holds no data: delete "+
		"it ('qm destroy %d --purge' "+
		"on host pve), then run 'pulumi up --refresh'", n.VMID), deleteSuccessor(p, f))

	f.VM.Stopped = false
	assert.Contains(t, deleteSuccessor(p, f), "Run 'pulumi up --refresh', which adds it to the state.")

	f.VM.Stopped, f.Config.CDROMs = true, nil
	assert.Contains(t, deleteSuccessor(p, f), "Run 'pulumi up --refresh', which adds it to the state.")
}
