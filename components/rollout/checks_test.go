package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// inventory is what Proxmox VE has: VMIDs without a VM, and VMs.
type inventory struct {
	absent map[int]bool
	vms    map[int]vmidentity.Found
}

func (i inventory) Exists(n plan.Node) bool { return !i.absent[n.VMID] }

func (i inventory) AbsentVMIDs() map[int]bool { return i.absent }

func (i inventory) VM(vmid int) (vmidentity.Found, bool) {
	found, there := i.vms[vmid]

	return found, there
}

// TestMissingWorkers: a worker that Kubernetes does not know is unavailable, unless it is to come for the first time,
// or known to be dead. What the update sets up is waited for without the limiter.
func TestMissingWorkers(t *testing.T) {
	worker := func(vmid int) plan.Node {
		return plan.Node{Name: fmt.Sprintf("w%d", vmid), Role: spec.RoleWorker, VMID: vmid}
	}
	nodes := []kubeapi.Node{{Name: "w2", Ready: true}}

	const missing = "1 of the workers may be unavailable (lifecycle.upgrade.maxUnavailable), and these are not in " +
		"Kubernetes: w1 (to let them join first, undo the other changes, run 'pulumi up', then make the other " +
		"changes again; what does not join is named in lifecycle.replace, and also in lifecycle.forceRemove if it does " +
		"not answer, or taken out of the configuration)"

	for name, test := range map[string]struct {
		absent, silent, joining bool
		replace, force          []string
		max                     int
		refused, awaited        bool
	}{
		"it exists":                      {refused: true},
		"it exists, and more may":        {max: 2},
		"it comes for the first time":    {absent: true},
		"it is set up in this run":       {joining: true, refused: true, awaited: true},
		"it is replaced":                 {replace: []string{"w1"}, refused: true, awaited: true},
		"its VM is gone for replacement": {absent: true, replace: []string{"w1"}, refused: true, awaited: true},
		"its host is dead":               {silent: true, replace: []string{"w1"}, refused: true},
		"it is dead":                     {replace: []string{"w1"}, force: []string{"w1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Scope{
				Plan: &plan.Plan{
					MaxUnavailable: max(test.max, 1), Replace: test.replace, ForceRemove: test.force,
					Pools: []plan.PlannedPool{{Role: spec.RoleWorker, Nodes: []plan.Node{worker(1), worker(2)}}},
				},
				Inventory: inventory{
					absent: map[int]bool{1: test.absent},
					vms:    map[int]vmidentity.Found{1: {VM: proxmoxapi.VM{Unreachable: test.silent}}},
				},
				Limiter: NewLimiter(1),
			}

			if test.joining {
				s.Limiter.AddJoining("w1")
			}

			err := s.CheckWorkers(nodes, "w2")
			if !test.refused {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, missing)
			assert.Equal(t, test.awaited, IsWaitingForJoin(err))
		})
	}
}

// TestCheckEtcd: a control plane that the update sets up is waited for without the limiter. A K3s server that is
// replaced waits for the servers before it.
func TestCheckEtcd(t *testing.T) {
	members := []etcd.Member{{Name: "c2"}, {Name: "c3"}}

	for name, test := range map[string]struct {
		absent  bool
		replace []string
		k3s     *plan.PlannedK3s
		awaited bool
	}{
		"it is only missing":           {},
		"it is replaced":               {replace: []string{"c1"}, awaited: true},
		"it is created":                {absent: true, awaited: true},
		"a K3s server that is created": {absent: true, k3s: &plan.PlannedK3s{}, awaited: true},
		"a K3s server is replaced":     {replace: []string{"c1"}, k3s: &plan.PlannedK3s{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Scope{
				Plan: &plan.Plan{Replace: test.replace, K3s: test.k3s, Pools: []plan.PlannedPool{{
					Role: spec.RoleControlPlane,
					Nodes: []plan.Node{
						{Name: "c1", VMID: 1, Role: spec.RoleControlPlane},
						{Name: "c2", VMID: 2, Role: spec.RoleControlPlane},
						{Name: "c3", VMID: 3, Role: spec.RoleControlPlane},
					},
				}}},
				Inventory: inventory{absent: map[int]bool{1: test.absent}},
			}

			err := s.CheckEtcd(members, "c2", impact.EffectReboot)
			require.ErrorContains(t, err, "etcd has only two of its 3 planned members (missing: c1)")
			assert.Equal(t, test.awaited, IsWaitingForJoin(err))

			require.NoError(t, s.CheckEtcd(append(members, etcd.Member{Name: "c1"}), "c2", impact.EffectReboot))
		})
	}
}

// TestCheckWorkers: of workers, no more are unavailable than are allowed to.
func TestCheckWorkers(t *testing.T) {
	p := &plan.Plan{MaxUnavailable: 2, Pools: []plan.PlannedPool{
		{Role: spec.RoleControlPlane, Nodes: []plan.Node{{Name: "c", Role: spec.RoleControlPlane}}},
		{Role: spec.RoleWorker, Nodes: []plan.Node{
			{Name: "w1", Role: spec.RoleWorker},
			{Name: "w2", Role: spec.RoleWorker},
			{Name: "w3", Role: spec.RoleWorker},
			{Name: "new", Role: spec.RoleWorker},
		}},
	}}

	s := Scope{Plan: p}

	// Neither a control plane nor a foreign node counts, nor a node that has not come yet, nor the node itself.
	nodes := []kubeapi.Node{{Name: "c"}, {Name: "foreign"}, {Name: "w1"}, {Name: "w2"}, {Name: "w3", Ready: true}}
	require.NoError(t, s.CheckWorkers(nodes, "w1"))

	nodes[4].Ready = false
	require.EqualError(t, s.CheckWorkers(nodes, "w1"),
		"2 of the workers may be unavailable (lifecycle.upgrade.maxUnavailable), and these are not ready: w2, w3")

	// One that an operator has cordoned takes no pods. The node itself may be cordoned, and one that this program has
	// cordoned is counted by the limiter.
	nodes[3] = kubeapi.Node{Name: "w2", Ready: true, Cordoned: true}
	require.EqualError(t, s.CheckWorkers(nodes, "w1"), "2 of the workers may be unavailable "+
		"(lifecycle.upgrade.maxUnavailable), and these are not ready: w3, and these are cordoned: w2 (not by this program: "+
		"uncordon them with kubectl, or raise the limit)")

	nodes[2].Ready = true
	require.NoError(t, s.CheckWorkers(nodes, "w2"))

	nodes[4] = kubeapi.Node{Name: "w3", Ready: true, Cordoned: true}
	require.EqualError(t, s.CheckWorkers(nodes, "w1"), "2 of the workers may be unavailable "+
		"(lifecycle.upgrade.maxUnavailable), and these are cordoned: w2, w3 (not by this program: uncordon them with "+
		"kubectl, or raise the limit)")

	nodes[4].Ours = true
	require.NoError(t, s.CheckWorkers(nodes, "w1"))
}

// absent is an inventory of Proxmox VE that lacks some VMs.
type absent map[int]bool

func (a absent) Exists(n plan.Node) bool { return !a[n.VMID] }

func (a absent) AbsentVMIDs() map[int]bool { return a }

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
