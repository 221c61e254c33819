package vmidentity

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
)

func TestCheckVMIDFree(t *testing.T) {
	p := plantest.ISO(t)
	n := p.Nodes()[0]
	args := inputs(map[string]any{"vmId": float64(n.VMID), "name": n.Name})
	at := fmt.Sprintf("VMID %d", n.VMID)
	empty := fmt.Sprintf(
		`%s is "c-control-1" on host pve already, but not in this stack's state: a run was interrupted while it created the VM, and the VM holds no data. Delete it ('qm destroy %d --purge' there), then run 'pulumi up' again`, at, n.VMID)
	adopt := at +
		` is "c-control-1" on host pve already, but not in this stack's state: a run was interrupted before it could record the VM, or the state is an older copy. To add it to the state, run 'go run ./stacks/ops -s dev import' and what that prints. Delete it only if it is not a node of the cluster ('kubectl get nodes'): then 'pulumi up' recreates it`

	assert.NoError(t, CheckVMIDFree(t.Context(), p, &fakeProxmox{}, "dev", args))
	assert.EqualError(t, CheckVMIDFree(t.Context(), p, &fakeProxmox{err: proxmoxapi.ErrUnreachable}, "dev", args),
		"cannot be reached")

	whole := proxmoxapi.VMConfig{
		Disks:  map[string]int{n.Disks[0].Interface: 40},
		CDROMs: map[string]string{n.CDROM: "none"},
	}
	loaded, bare := whole, whole
	loaded.CDROMs, bare.Disks = map[string]string{n.CDROM: "local:iso/talos-1.12.4.iso"}, nil
	holding := func(medium string) proxmoxapi.VMConfig {
		c := whole
		c.CDROMs = map[string]string{n.CDROM: medium}

		return c
	}
	ours := proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: "pve", Tags: OwnerTags(p), Stopped: true}
	unknown := at + ` is "c-control-1" on host pve already, but not in this stack's state, and without the tags c and ` +
		`talos of this cluster: it is unknown who created it, and it may hold data. Inspect it (` +
		fmt.Sprintf("'qm config %d'", n.VMID) + ` there) before you remove it; or choose another range`

	// What a copy of a template has of the node's, before its settings follow.
	copied := whole
	copied.UUID = "110ec58a-a0f2-4ac4-8393-c866d813b8d1"
	copied.Settings = map[string]string{
		"description": Describe("Talos controlplane", "6c84fb90-12c4-11e1-840d-7b25c5ee775a"), "tags": "talos",
	}

	for name, c := range map[string]struct {
		change func(*proxmoxapi.VM)
		config proxmoxapi.VMConfig
		want   string
	}{
		"a foreign VM": {
			func(v *proxmoxapi.VM) { v.Name = "mail" }, bare,
			at +
				`, meant for "c-control-1", is taken by "mail" on host pve: it was created during this run. Remove it, or choose another range`,
		},
		"it runs":                        {func(v *proxmoxapi.VM) { v.Stopped = false }, loaded, adopt},
		"it ran":                         {func(*proxmoxapi.VM) {}, whole, adopt},
		"a copy without its settings":    {func(v *proxmoxapi.VM) { v.Tags = []string{"talos"} }, copied, empty},
		"no copy, without our tags":      {func(v *proxmoxapi.VM) { v.Tags = nil }, whole, unknown},
		"of another cluster":             {func(v *proxmoxapi.VM) { v.Tags = []string{"other", "talos"} }, loaded, unknown},
		"without our tags, and it runs":  {func(v *proxmoxapi.VM) { v.Tags, v.Stopped = nil, false }, whole, unknown},
		"without our tags, and its disk": {func(v *proxmoxapi.VM) { v.Tags = nil }, bare, empty},
		"without its disk":               {func(*proxmoxapi.VM) {}, bare, empty},
		"with another disk only": {func(*proxmoxapi.VM) {}, proxmoxapi.VMConfig{
			Disks: map[string]int{"scsi7": 100}, CDROMs: map[string]string{n.CDROM: "none"},
		}, adopt},
		"the ISO file is still in its drive": {func(*proxmoxapi.VM) {}, loaded, empty},
		"an ISO file of the cluster":         {func(*proxmoxapi.VM) {}, holding("local:iso/c-0123456789ab-metal-amd64.iso"), empty},
		"an ISO file of an operator's":       {func(*proxmoxapi.VM) {}, holding("local:iso/systemrescue.iso"), adopt},
		"a cloud-init drive":                 {func(*proxmoxapi.VM) {}, holding("local-lvm:vm-401-cloudinit"), adopt},
	} {
		t.Run(name, func(t *testing.T) {
			v := ours
			c.change(&v)
			assert.EqualError(t, CheckVMIDFree(t.Context(), p, &fakeProxmox{machine: &v, config: c.config}, "dev", args), c.want)
		})
	}

	// Where it stays in the drive, it tells nothing.
	p.Pools[0].Image.Detach = false
	assert.EqualError(t, CheckVMIDFree(t.Context(), p, &fakeProxmox{machine: &ours, config: loaded}, "dev", args), adopt)
}
