package vms

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// disksOf has a shared datastore that is read on one host, and a local one of which host b cannot tell what it has.
type disksOf struct {
	preflighttest.Healthy

	shared atomic.Int32
}

func (*disksOf) Stores(context.Context, string) (map[string]proxmoxapi.Store, error) {
	return map[string]proxmoxapi.Store{
		"ceph":      {Content: []string{"images"}, Active: true, Shared: true},
		"local-lvm": {Content: []string{"images", "rootdir"}, Active: true},
		"local":     {Content: []string{"iso"}, Active: true},
		"usb":       {Content: []string{"images"}},
	}, nil
}

func (d *disksOf) DiskImages(_ context.Context, host, datastore string) ([]proxmoxapi.DiskImage, error) {
	switch {
	case datastore == "ceph":
		d.shared.Add(1)

		return []proxmoxapi.DiskImage{
			{Volume: "ceph:vm-403-disk-0", VMID: 403},
			{Volume: "ceph:vm-9999-pvc-1", VMID: 9999},
			{Volume: "ceph:vm-401-disk-0", VMID: 401},
			{Volume: "ceph:vm-405-disk-0", VMID: 405},
		}, nil
	case host == "b":
		return nil, errors.New("got timeout")
	default: // of host a, where 403 is not to be
		return []proxmoxapi.DiskImage{
			{Volume: "local-lvm:vm-402-disk-1", VMID: 402},
			{Volume: "local-lvm:vm-402-disk-0", VMID: 402},
			{Volume: "local-lvm:vm-403-disk-0", VMID: 403},
		}, nil
	}
}

// TestLeftDisks: a VMID is not used whose disks another VM left, or that a storage driver names its volumes by. The
// disks of VMs that are there are theirs.
func TestLeftDisks(t *testing.T) {
	t.Parallel()

	proxmox := &disksOf{}
	nodes := []plan.Node{
		{Name: "there", Pool: "a", VMID: 401, Host: "a"},
		{Name: "local", Pool: "a", VMID: 402, Host: "a"},
		{Name: "shared", Pool: "b", VMID: 403, Host: "b"},
	}
	c := New(checks.New(&plan.Plan{Pools: []plan.PlannedPool{
		{Name: "a", Nodes: nodes[:2]},
		{Name: "b", Nodes: nodes[2:]},
	}}, proxmox))
	c.Absent[402], c.Absent[403] = true, true

	require.NoError(t, c.CheckLeftDisks(t.Context()))
	assert.Equal(t, spec.Problems{
		{
			Path: "pools.a.vmids", Value: "local",
			Rule: "402 has no VM, but disks on host a (local-lvm:vm-402-disk-0, local-lvm:vm-402-disk-1): their owner is " +
				"unknown, and they would be deleted together with this node's VM",
			Remedy: "inspect the disks, and remove them if nothing needs them (run 'pvesm free local-lvm:vm-402-disk-0 && " +
				"pvesm free local-lvm:vm-402-disk-1' on host a); or choose another range (the next free VMID is 404)",
		},
		{
			Path: "pools.b.vmids", Value: "shared",
			Rule: "403 has no VM, but disks on host a (ceph:vm-403-disk-0): their owner is unknown, and they would be deleted " +
				"together with this node's VM",
			Remedy: "inspect the disks, and remove them if nothing needs them (run 'pvesm free ceph:vm-403-disk-0' on host a); " +
				"or choose another range (the next free VMID is 406)",
		},
	}, c.Problems)
	assert.Equal(t, spec.Problems{{
		Path: "proxmox.storage", Value: "local-lvm",
		Rule:   "could not be searched on host b for disks with the VMIDs of new nodes: got timeout",
		Remedy: "run 'pvesm list local-lvm' there: a disk with such a VMID is deleted together with the VM of the node",
	}}, c.Warnings)
	assert.EqualValues(t, 1, proxmox.shared.Load())
}

// hiddenVMs does not show all VMs to the credentials.
type hiddenVMs struct{ *disksOf }

func (hiddenVMs) Permissions(context.Context) (proxmoxapi.Permissions, error) { return nil, nil }

// TestLeftDisksOfHiddenVMs: disks without a VM may be those of a VM that the credentials do not see.
func TestLeftDisksOfHiddenVMs(t *testing.T) {
	t.Parallel()

	n := plan.Node{Name: "local", Pool: "a", VMID: 402, Host: "a"}
	p := &plan.Plan{Pools: []plan.PlannedPool{{Name: "a", Nodes: []plan.Node{n}}}}
	c := New(checks.New(p, hiddenVMs{&disksOf{}}))
	c.Absent[402] = true

	require.NoError(t, c.CheckLeftDisks(t.Context()))
	require.Len(t, c.Problems, 1)
	assert.Contains(t, c.Problems[0].Rule, "402 has no VM that the credentials see, but disks on host a ")
	assert.Equal(t, "choose another range (the next free VMID is 404)", c.Problems[0].Remedy)

	c = New(checks.New(&plan.Plan{Teardown: true, Pools: p.Pools}, nil))
	c.Absent[402] = true

	require.NoError(t, c.CheckLeftDisks(t.Context()), "nothing is created")
}
