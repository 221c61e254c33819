package vms

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// TestMoves: a node with local disks of others is not moved, one with shared ones is warned of, and those that stay
// where they are are left alone.
func TestMoves(t *testing.T) {
	t.Parallel()

	nodes := []plan.Node{
		{Name: "moves", VMID: 501, Host: "b"}, {Name: "stays", VMID: 502, Host: "a"}, {Name: "empty", VMID: 503, Host: "b"},
	}
	vms := []proxmoxapi.VM{{ID: 501, Host: "a"}, {ID: 502, Host: "a"}, {ID: 503, Host: "a"}}
	disks := &proxmoxapi.Settings{Current: map[string]string{
		"scsi0": "local-lvm:vm-501-disk-0,size=40G", "scsi1": "local-lvm:vm-9999-pvc-1,serial=x", "name": "vm-1-a",
		"scsi2": "local-lvm:vm-9999-pvc-2", "scsi3": "nfs:9999/vm-9999-pvc-3.raw,size=1G",
		"ide2": "local:iso/talos.iso,media=cdrom", "efidisk0": "local-lvm:vm-501-disk-1,size=4M",
	}}
	settings := []*proxmoxapi.Settings{disks, disks, {Current: map[string]string{"scsi0": "local-lvm:vm-503-disk-0"}}}

	for _, rebalance := range []bool{false, true} {
		c := New(checks.New(&plan.Plan{Rebalance: rebalance}, &preflighttest.ManyHosts{Shared: map[string]bool{"nfs": true}}))
		require.NoError(t, c.checkMoves(t.Context(), nodes, vms, settings))

		if !rebalance {
			assert.Empty(t, c.Problems)
			assert.Empty(t, c.Warnings)

			continue
		}

		const rule = "moves moves from host a to b, but disks that do not belong to it are attached: "

		assert.Equal(t, spec.Problems{{
			Path: "placement.rebalance", Rule: rule + "Proxmox VE does not migrate local ones",
			Value: "scsi1 local-lvm:vm-9999-pvc-1, scsi2 local-lvm:vm-9999-pvc-2",
			Remedy: "drain the node first, so that Proxmox CSI detaches them and its pods run elsewhere; or leave " +
				"rebalance out",
		}}, c.Problems)
		assert.Equal(t, spec.Problems{{
			Path: "placement.rebalance", Rule: rule + "they move with it", Value: "scsi3 nfs:9999/vm-9999-pvc-3.raw",
			Remedy: "check their pods afterwards",
		}}, c.Warnings)
	}
}
