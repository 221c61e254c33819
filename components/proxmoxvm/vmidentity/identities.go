package vmidentity

import (
	"context"
	"slices"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// Identities tell the VMs of a cluster from others that have their VMIDs. What changes, restarts or deletes a VM asks
// here first, immediately before it does.
type Identities struct {
	ctx     *pulumi.Context
	plan    *plan.Plan
	proxmox Proxmox
	// found are the VMs that Proxmox VE had when the run began, by VMID.
	found func(vmid int) (Found, bool)
	// SetUpOn tells the SMBIOS UUID of the machine that a node was set up on, where the state does not; nil: the program
	// sets up no node.
	SetUpOn func(ctx context.Context, n plan.Node) (uuid string, err error)
	// Joined tells the node of the cluster whose machine has an SMBIOS UUID; empty: there is none. It is nil where the
	// program sets up no node.
	Joined func(ctx context.Context, uuid string) (node string, err error)

	mu sync.Mutex
	// known are the VMs as the state has them, as far as this run has come to them.
	known map[int]Machine
	// creating are those that this run makes.
	creating map[int]bool
	// foreign are VMIDs that another VM has, and why.
	foreign map[int]error
	// warned are VMIDs of which it was said that whose they are is not known.
	warned map[int]bool
	// shown are VMIDs whose VM was found to be the one that its node was set up on.
	shown map[int]bool
	// state are the VMs of the state, by the names of their resources, once it was read.
	state map[string]stateMachine
	// records are the names of the records of the state.
	records map[string]bool
	// released says that the last update has released the cluster.
	released bool
	// unread is why it could not be read.
	unread error
	read   chan struct{}
	once   sync.Once
	// reads says that this run reads it.
	reads bool
}

// NewIdentities returns the Identities of a plan. found is what preflight found with a VMID.
func NewIdentities(ctx *pulumi.Context, p *plan.Plan, proxmox Proxmox, found func(vmid int) (Found, bool)) *Identities {
	return &Identities{
		ctx: ctx, plan: p, proxmox: proxmox, found: found,
		known: map[int]Machine{}, creating: map[int]bool{}, foreign: map[int]error{}, warned: map[int]bool{},
		shown: map[int]bool{}, read: make(chan struct{}),
	}
}

// VMs are the VMs with the tags of the cluster.
func (i *Identities) VMs(ctx context.Context) ([]proxmoxapi.VM, error) {
	all, err := i.proxmox.VMs(ctx)

	return slices.DeleteFunc(all, func(v proxmoxapi.VM) bool { return !OfCluster(v, i.plan) }), err
}

// unplannedVMs are the VMs with the tags of the cluster that are of no node of the plan. Templates and containers never
// were nodes.
func (i *Identities) unplannedVMs(ctx context.Context) ([]proxmoxapi.VM, error) {
	all, err := i.VMs(ctx)

	return slices.DeleteFunc(all, func(v proxmoxapi.VM) bool {
		_, _, planned := NodeByVMID(i.plan, v.ID)

		return planned || v.Template || v.Container
	}), err
}

// LeavingControlPlanes are the VMs of control planes that have left the plan, without those that the operator has
// declared dead: the data of etcd may be on them. Of a VM on a host that is down for long, no name is known.
func (i *Identities) LeavingControlPlanes(ctx context.Context) ([]proxmoxapi.VM, error) {
	all, err := i.unplannedVMs(ctx)

	return slices.DeleteFunc(slices.Clone(all), func(v proxmoxapi.VM) bool {
		return !slices.Contains(v.Tags, string(spec.RoleControlPlane)) || DeclaredDead(i.plan, v, all)
	}), err
}

// DeclaredDead says that the operator has declared the node of a VM dead, which is one of those that have left the
// plan. Proxmox VE forgets the names of VMs on a host that is down for long: those without a name are taken for the
// nodes that are declared dead and have no other VM, unless there are fewer of these.
func DeclaredDead(p *plan.Plan, v proxmoxapi.VM, unplanned []proxmoxapi.VM) bool {
	if v.Name != "" {
		return p.DeclaredDead(v.Name)
	}

	nameless := 0
	dead := map[string]bool{}

	for _, name := range p.ForceRemove {
		dead[name] = true
	}

	for _, n := range p.Nodes() {
		delete(dead, n.Name)
	}

	for _, other := range unplanned {
		delete(dead, other.Name)

		if other.Name == "" {
			nameless++
		}
	}

	return nameless <= len(dead)
}

// firstWarning says that a VM was not warned of yet: its companions are looked at before it is.
func (i *Identities) firstWarning(vmid int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()

	first := !i.warned[vmid]
	i.warned[vmid] = true

	return first
}

// Record says that a VM of the state was found to be ours.
func (i *Identities) Record(m Machine) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.known[m.VMID] = m
}

func (i *Identities) refuse(vmid int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.foreign[vmid] = err
}
