package talos

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// poweredOff is a Proxmox VE with VMs of which some are off, and of others nothing is known.
type poweredOff struct {
	proxmoxvm.Proxmox
	off map[int]bool
}

func (p poweredOff) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Stopped: p.off[vmid]}, true, nil
}

// unreached is a cluster of three control planes none of which answers.
func unreached(t *testing.T, off ...int) *cluster.Cluster {
	t.Helper()

	p := &plan.Plan{
		SettleTimeout: time.Millisecond, ReadyTimeout: time.Second, NodeTimeout: time.Second,
		Pools: []plan.PlannedPool{{Name: "c", Role: spec.RoleControlPlane}},
	}
	book := &proxmoxvm.AddressBook{}

	for i, name := range []string{"c-1", "c-2", "c-3"} {
		p.Pools[0].Nodes = append(p.Pools[0].Nodes, plan.Node{
			Name: name, Pool: "c", Role: spec.RoleControlPlane, VMID: 401 + i,
		})
		book.Set(name, "127.0.99.1") // where nothing listens
	}

	known := map[int]bool{}
	for _, vmid := range off {
		known[vmid] = true
	}

	return &cluster.Cluster{Options: cluster.Options{
		Proxmox: poweredOff{off: known},
		Scope: rollout.Scope{
			Plan: p, Addresses: book, Program: rollout.Program{Progress: func(string) {}, Warn: func(string) {}},
		},
	}}
}

// TestUnknownQuorum: control planes that are not reached may have their quorum. Only VMs that are off are known to be
// of none.
func TestUnknownQuorum(t *testing.T) {
	for name, c := range map[string]struct {
		off  []int
		want string
	}{
		"none is reached": {nil, "etcd does not answer, and whether it needs c-1 is not known: c-1, c-2, c-3 may go on with it"},
		"one is off":      {[]int{403}, "etcd does not answer, and whether it needs c-1 is not known: c-1, c-2 may go on with it"},
		"two are off":     {[]int{402, 403}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := unreached(t, c.off...)
			l := leavingNode{Target: talosapi.Target{Name: "c-1", Address: "127.0.99.1"}, role: spec.RoleControlPlane}
			abandoned := (&Removals{Cluster: cluster}).abandonQuorum(t.Context(), l)

			restarts := &Restarts{Changes: &Changes{Cluster: cluster}}
			restarted := restarts.checkUnreachable(t.Context(), nodeChange{
				node: cluster.Plan.ControlPlanes()[0], Target: talosapi.Target{Name: "c-1"},
			})

			if c.want == "" {
				require.NoError(t, abandoned)
				require.NoError(t, restarted)

				return
			}

			require.ErrorContains(t, abandoned, "c-1 is not removed: "+c.want)
			require.ErrorContains(t, restarted, c.want)
			assert.ErrorContains(t, restarted, "see that this machine reaches the control planes")
		})
	}

	t.Run("interrupted", func(t *testing.T) {
		cluster := unreached(t, 401, 402, 403)
		cluster.Plan.SettleTimeout = time.Minute

		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		l := leavingNode{Target: talosapi.Target{Name: "c-1", Address: "127.0.99.1"}, role: spec.RoleControlPlane}
		require.Error(t, (&Removals{Cluster: cluster}).abandonQuorum(ctx, l))
	})
}
