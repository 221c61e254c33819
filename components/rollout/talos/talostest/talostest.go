// Package talostest has Talos clusters for the tests of the operations on their nodes.
package talostest

import (
	"context"
	"slices"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
)

// Unreachable is a cluster of three control planes, c-1 to c-3, none of which answers. Proxmox VE knows that those with
// some VMIDs, 401 to 403, are off.
func Unreachable(off ...int) *cluster.Cluster {
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

	return cluster.New(cluster.Options{
		Proxmox: poweredOff{off: off},
		Scope: rollout.Scope{
			Plan: p, Addresses: book, Program: rollout.Program{Progress: func(string) {}, Warn: func(string) {}},
		},
	})
}

// UnknownQuorum has, for VMs of Unreachable that are off, why etcd may go on with c-1; empty: it has lost its quorum.
var UnknownQuorum = map[string]struct {
	Off []int
	Why string
}{
	"none is reached": {
		nil, "etcd does not answer, and it is unknown whether it needs c-1: c-1, c-2, c-3 may still have a quorum " +
			"with it",
	},
	"one is off": {
		[]int{403}, "etcd does not answer, and it is unknown whether it needs c-1: c-1, c-2 may still have a " +
			"quorum with it",
	},
	"two are off": {[]int{402, 403}, ""},
}

// poweredOff is a Proxmox VE with VMs of which some are off, and of others nothing is known.
type poweredOff struct {
	proxmoxvm.Proxmox
	off []int
}

func (p poweredOff) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Stopped: slices.Contains(p.off, vmid)}, true, nil
}
