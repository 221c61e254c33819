package vms

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// TestRoleOfExistingNodes: a pool whose nodes exist does not get another role, in clusters of both kinds.
func TestRoleOfExistingNodes(t *testing.T) {
	worker := plantest.Template()
	worker.Pools[0].Role = spec.RoleWorker

	vms := func(tags ...string) []proxmoxapi.VM {
		return []proxmoxapi.VM{
			{ID: 401, Name: "c-control-1", Host: "pve", Tags: tags},
			{ID: 402, Name: "c-control-2", Host: "pve", Tags: tags},
		}
	}

	const both = "c-control-1 (VMID 401 on host pve), c-control-2 (VMID 402 on host pve)"

	for name, c := range map[string]struct {
		plan *plan.Plan
		vms  []proxmoxapi.VM
		want string
	}{
		"to a worker": {worker, vms("c", "controlplane", "talos"), "pools.control.role: does not change for nodes that " +
			"exist, because etcd would go on counting them; made with the role controlplane: " + both + " (given: worker); " +
			"write controlplane again; for nodes with the role worker, add a pool with another name, and then remove the " +
			"nodes of this one"},
		"to a control plane": {plantest.Template(), vms("c", "talos", "worker"), "pools.control.role: does not change for " +
			"nodes that exist, because a worker does not join etcd later; made with the role worker: " + both + " (given: " +
			"controlplane); write worker again; for nodes with the role controlplane, add a pool with another name, and then " +
			"remove the nodes of this one"},
		"as it is":           {worker, vms("c", "talos", "worker"), ""},
		"a tag of operators": {worker, vms("c", "controlplane", "talos", "worker"), ""},
		"another cluster":    {worker, vms("other", "controlplane", "talos"), ""},
		"K3s": {
			plantest.K3s(t),
			[]proxmoxapi.VM{{
				ID: plantest.K3s(t).Nodes()[0].VMID, Name: "edge-server-1", Host: "a", Tags: []string{"edge", "k3s", "worker"},
			}},
			"pools.server.role: does not change for nodes that exist, because a worker does not join etcd later; made with the " +
				"role worker: edge-server-1 (VMID 401 on host a) (given: controlplane); write worker again; for nodes with the " +
				"role controlplane, add a pool with another name, and then remove the nodes of this one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checker := New(checks.New(c.plan, nil))
			checker.VMs = c.vms
			require.NoError(t, checker.CheckRoles(t.Context()))

			if c.want == "" {
				require.Empty(t, checker.Problems)
			} else {
				require.EqualError(t, checker.Problems.Err(), "the configuration has 1 problem:\n  - "+c.want)
			}
		})
	}
}
