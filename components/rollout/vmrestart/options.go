package vmrestart

import (
	"context"
	"sync"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
)

// Options are what the hooks of one cluster's VMs need to know.
type Options struct {
	rollout.Scope

	Proxmox Proxmox
	// Permissions of the credentials.
	Permissions Permissions
	Rollout     *rollout.Rollout
	// Nodes of the plan, by the name of their VM.
	Nodes map[string]plan.Node
	// System is what runs in the VMs; nil: the program does not manage it.
	System rollout.System
}

// Proxmox is what is asked of Proxmox VE; *proxmoxapi.Client implements it.
type Proxmox interface {
	proxmoxvm.Proxmox

	Process(ctx context.Context, vm proxmoxapi.VM) (int, error)
	Start(ctx context.Context, vm proxmoxapi.VM) error
	Restart(ctx context.Context, vm proxmoxapi.VM) error
}

// Permissions say whether the credentials may change properties of the VM of a node; *preflight.Report implements it.
type Permissions interface {
	CheckPermissions(n plan.Node, changes []string) error
}

// Hooks run before and after changes of VMs. The provider restarts a VM within its update, whatever runs in it: the
// node is drained before, when the limiter admits it, and released when it has rejoined. All of that is within the one
// step of the engine that changes the VM, so that a node that waits for the limiter waits for work that is under way.
type Hooks struct {
	Options

	// grace is how long Proxmox VE may take to start a VM that it restarts, offGrace one that is found off.
	grace, offGrace time.Duration

	mu sync.Mutex
	// underWay are the restarts that are under way, by the name of the VM.
	underWay map[string]restart
}

// restart is a VM that is being changed.
type restart struct {
	*rollout.Disruption
	machineNow

	// drained is the process of the VM when the provider was asked to change it.
	drained int
}

// machineNow is a VM as it runs.
type machineNow struct {
	vm proxmoxapi.VM
	// process runs it; 0: it is off, or there is none.
	process int
	// pending are settings that wait for its restart; empty: none. An update has failed before it came to that, and to the
	// provider the VM looks done, in the state as on Proxmox VE.
	pending string
	// settings are those it runs with.
	settings map[string]string
}

const (
	// startGrace is how long Proxmox VE may take to start a VM that it has shut down for a restart.
	startGrace = 20 * time.Second
	// offGrace is the same where no restart is known of: the start follows within two seconds (qm cleanup).
	offGrace = 5 * time.Second
)

// New returns the hooks of one cluster's VMs.
func New(o Options) *Hooks {
	return &Hooks{Options: o, grace: startGrace, offGrace: offGrace, underWay: map[string]restart{}}
}
