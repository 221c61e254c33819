package vms

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// TestHAWithLocalDisks: high availability of VMs with local disks is warned of, once for a pool and datastore.
func TestHAWithLocalDisks(t *testing.T) {
	const (
		local = ": has no effect when a host is lost: datastore zfs is not shared, and the VMs cannot start on another " +
			"host without their disks (given: zfs); place the disks on shared storage (disk.datastore), or replicate them " +
			"('pvesr', on ZFS): the VMs then start from the last copy"
		unknown = "pools.w.ha: could not determine whether the datastores of its disks are shared: broken"
	)

	managed := func(n *plan.Node) { n.HA = &spec.HA{} }

	for name, c := range map[string]struct {
		node   func(*plan.Node)
		shared map[string]bool
		err    error
		there  bool
		want   []string
		fails  bool
	}{
		"local":         {node: managed, shared: map[string]bool{"zfs": false}, want: []string{"pools.w.ha" + local}},
		"in a group":    {node: func(n *plan.Node) { n.HAGroup = "racks" }, shared: map[string]bool{"zfs": false}, want: []string{"pools.w.haGroup" + local}},
		"there already": {node: managed, shared: map[string]bool{"zfs": false}, there: true},
		"shared":        {node: managed, shared: map[string]bool{"zfs": true}},
		"not seen":      {node: managed, shared: map[string]bool{"ceph": true}},
		"nothing seen":  {node: managed, shared: map[string]bool{}},
		"not wanted":    {node: func(*plan.Node) {}, shared: map[string]bool{"zfs": false}},
		"not read":      {node: managed, err: errors.New("broken"), want: []string{unknown}},
		"without reply": {node: managed, err: proxmoxapi.ErrUnreachable, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Pools: []plan.PlannedPool{{Name: "w"}}}

			for range 2 {
				n := plan.Node{Pool: "w", Disks: []plan.Disk{{Datastore: "zfs"}, {Datastore: "zfs"}}}
				c.node(&n)
				p.Pools[0].Nodes = append(p.Pools[0].Nodes, n)
			}

			s := New(checks.New(p, &preflighttest.ManyHosts{Shared: c.shared, SharedErr: c.err}))
			s.Absent[0] = !c.there
			require.Equal(t, c.fails, s.warnLocalDisks(t.Context()) != nil)

			var said []string
			for _, w := range s.Warnings {
				said = append(said, w.String())
			}

			assert.Equal(t, c.want, said)
			assert.Empty(t, s.Problems)
		})
	}
}
