// Package plan turns what the operator asks for into every decision the program needs: names, hosts, VMIDs, MACs,
// addresses, the endpoint. It is pure: the same Spec gives the same Plan, and growing a pool changes nothing that exists.
// It knows neither Pulumi nor any server.
package plan

import (
	"net/netip"
	"time"
)

// Plan is every decision, made once, before anything is registered.
type Plan struct {
	Environment Environment
	// Cluster is the cluster's name.
	Cluster   string
	Bootstrap Owner
	// Talos and Kubernetes are versions with a leading v.
	Talos, Kubernetes string
	// Endpoint is the Kubernetes API as the nodes and the kubeconfig know it, "https://10.0.0.11:6443".
	Endpoint string
	// Network is the network of the nodes.
	Network netip.Prefix
	// Source and Platform are where the first boot comes from.
	Source   Source
	Platform Platform
	// Installer is the image that Talos installs and upgrades from.
	Installer string
	// Patches are the operator's machine configuration patches for every node.
	Patches []Patch
	// Pools in plan order: control planes first, then by name.
	Pools []PlannedPool
	// ReadyTimeout and NodeTimeout bound the program's own waits.
	ReadyTimeout, NodeTimeout time.Duration
	// Warnings do not stop the program.
	Warnings []Problem
}

// PlannedPool is one pool with its nodes, in the order of their ordinals.
type PlannedPool struct {
	Name    string
	Role    Role
	Patches []Patch
	Nodes   []Node
}

// Node is one Talos machine: everything that is decided about it.
type Node struct {
	Name    string
	Pool    string
	Role    Role
	Ordinal int
	// Host is where the VM is made. It may move later: this is no statement of where it is.
	Host string
	VMID int
	MAC  string
	// Address is invalid when it is not known in advance.
	Address netip.Addr
	// Template is the name or VMID of the template to clone.
	Template string
	// DiskInterface is where the system disk is, "scsi0".
	DiskInterface string
	// Datastore holds the system disk.
	Datastore string
	Cores     int
	MemoryMiB int
	DiskGiB   int
	CPUType   string
	OnBoot    bool
	Bridge    string
	VLAN      int // 0: untagged
	Tags      []string
}

// Nodes returns all nodes in plan order.
func (p *Plan) Nodes() []Node {
	var all []Node
	for _, pool := range p.Pools {
		all = append(all, pool.Nodes...)
	}

	return all
}

// ControlPlanes returns the control planes in plan order. The first is the one that is bootstrapped.
func (p *Plan) ControlPlanes() []Node {
	var found []Node

	for _, n := range p.Nodes() {
		if n.Role == ControlPlane {
			found = append(found, n)
		}
	}

	return found
}

// New plans a cluster. The error holds all problems (Problems); the plan is only there without one.
func New(spec Spec) (*Plan, error) {
	r := resolver{spec: spec}

	p := r.resolve()
	if err := r.problems.Err(); err != nil {
		return nil, err
	}

	return p, nil
}
