package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// absent is an inventory of Proxmox VE that lacks some VMs.
type absent map[int]bool

func (a absent) Exists(n plan.Node) bool                  { return !a[n.VMID] }
func (a absent) AbsentVMIDs() map[int]bool                { return a }
func (a absent) VM(int) (found vmidentity.Found, is bool) { return found, false }

// TestVersionOrder: a worker gets the version that every control plane has, in an update that knows what they have.
func TestVersionOrder(t *testing.T) {
	t.Parallel()

	one := plan.Node{Name: "home-control-1", VMID: 401, Role: spec.RoleControlPlane}
	two := plan.Node{Name: "home-control-2", VMID: 402, Role: spec.RoleControlPlane}
	worker := plan.Node{Name: "home-worker-1", VMID: 501, Role: spec.RoleWorker}
	p := &plan.Plan{NodeTimeout: time.Millisecond, Pools: []plan.PlannedPool{
		{Role: spec.RoleControlPlane, Nodes: []plan.Node{one, two}}, {Role: spec.RoleWorker, Nodes: []plan.Node{worker}},
	}}

	const (
		old, wanted = "v1.33.6", "v1.34.2"
		behind      = "cluster.versions.kubernetes: home-worker-1 is not changed: control plane home-control-2 stays at " +
			"v1.33.6, and workers never run a newer version (given: v1.34.2); run 'pulumi up' without --target and " +
			"--exclude, or let the flag include the control planes"
		unknown = "home-worker-1 is not changed: could not determine the version of control plane home-control-2 " +
			"within 1ms; " +
			"run 'pulumi up' without --target and --exclude"
	)

	for name, c := range map[string]struct {
		two, want string
		node      plan.Node
		absent    absent
	}{
		"both have it":                   {two: wanted, node: worker},
		"one has a newer one":            {two: "v1.35.0", node: worker},
		"one is left behind":             {two: old, node: worker, want: behind},
		"one is not known":               {node: worker, want: unknown},
		"one is new":                     {node: worker, absent: absent{402: true}},
		"a control plane waits for none": {two: old, node: one},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			versions := NewControlPlaneVersions(p)
			versions[one.Name].Set(wanted)

			if c.two != "" {
				versions[two.Name].Set(c.two)
			}

			err := versions.CheckNotNewer(
				t.Context(), Scope{Plan: p, Inventory: c.absent}, c.node, "cluster.versions.kubernetes", wanted)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.want)
			}
		})
	}
}
