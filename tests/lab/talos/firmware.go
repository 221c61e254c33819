package talos

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/blang/semver/v4"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/upstream"
)

// Latencies say how long things take; of these, a node knows Boot to Kubelet.
type Latencies = timeline.Latencies

// Options are what the firmware needs of the world around it.
type Options struct {
	Journal   *journal.Journal
	Timeline  *timeline.Timeline
	Latencies Latencies
	// Lease is the DHCP server: the address reserved for an interface, false when there is none. Nil: no DHCP at all.
	Lease func(machine.NIC) (netip.Prefix, bool)
	// Resolve is the DNS of the network, nil: there are no names but those of a cluster's members.
	Resolve func(host string) []netip.Addr
	// Schematic looks up a schematic by the id in an installer image's name. Nil: there are none but the plain one.
	Schematic func(id string) (Schematic, bool)
	// Release tells whether there is an installer of a version of Talos, "v1.12.4". Nil: there is one of each.
	Release func(version string) bool
	// Upstream is etcd and the control plane of Kubernetes as they are released; control planes run them with data below
	// Dir. Nil: the lab's own models of them.
	Upstream *upstream.Binary
	Dir      string
	// Log receives what a node would write on its console; nil: nothing.
	Log func(node, line string)
}

// Firmware boots Talos. All machines of one world share one.
type Firmware struct {
	opts      Options
	discovery discovery
	quorum    *quorumLog
	history   *history

	mu        sync.Mutex
	systems   map[int]*system           // by VMID: the newest power-on of each
	faults    map[string]map[Fault]bool // by the name of the VM
	withdrawn []string                  // ends of the names of images that cannot be pulled
	denied    []string                  // arguments of components that Talos denies, as a later version may
	approved  []netip.Prefix            // routes of the tailnet

	checking   sync.Mutex // one looks at versions at a time
	violations []Violation
	newest     map[string]semver.Version // of what runs, by node and component
	// how many looks were asked for, and which of them the last one did for, by cluster
	asked, looked map[string]int
}

// New returns a firmware for one world.
func New(o Options) *Firmware {
	if o.Lease == nil {
		o.Lease = func(machine.NIC) (netip.Prefix, bool) { return netip.Prefix{}, false }
	}

	if o.Resolve == nil {
		o.Resolve = func(string) []netip.Addr { return nil }
	}

	if o.Schematic == nil {
		o.Schematic = func(string) (Schematic, bool) { return Schematic{}, false }
	}

	if o.Release == nil {
		o.Release = func(string) bool { return true }
	}

	if o.Log == nil {
		o.Log = func(string, string) {}
	}

	return &Firmware{
		opts: o, quorum: &quorumLog{}, history: &history{}, systems: map[int]*system{}, faults: map[string]map[Fault]bool{},
		newest: map[string]semver.Version{}, asked: map[string]int{}, looked: map[string]int{},
	}
}

// PowerOn implements [machine.Firmware].
func (f *Firmware) PowerOn(hw machine.Hardware) machine.System {
	s := newSystem(f, hw)

	f.mu.Lock()
	f.systems[hw.VMID] = s
	f.mu.Unlock()

	go s.run()

	return s
}

// forget drops a system that ended, unless the machine was powered on again meanwhile.
func (f *Firmware) forget(s *system) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.systems[s.hw.VMID] == s {
		delete(f.systems, s.hw.VMID)
	}
}

// The stages a machine can be in; from maintenance on they are those of Talos' MachineStatus.
const (
	StageNoBoot       = "no bootable device"
	StageHalted       = "halted"
	StageBooting      = "booting"
	StageMaintenance  = "maintenance"
	StageInstalling   = "installing"
	StageRunning      = "running"
	StageRebooting    = "rebooting"
	StageResetting    = "resetting"
	StageUpgrading    = "upgrading"
	StageShuttingDown = "shutting down"
)

// Status is what a table of nodes shows of one powered-on machine.
type Status struct {
	Name      string // of the VM
	VMID      int
	MAC       string // of the first interface
	Address   netip.Addr
	Version   string // of Talos, empty before anything was booted
	Role      string // "controlplane" or "worker", empty before configuration
	Stage     string
	Ready     bool     // Talos' own readiness
	Joined    bool     // registered in Kubernetes
	NodeReady bool     // Ready in Kubernetes
	Unmet     []string // why Ready is false, as "name: reason"
}

// Nodes returns the status of all machines that are powered on, by VMID.
func (f *Firmware) Nodes() []Status {
	systems := f.poweredOn()

	out := make([]Status, 0, len(systems))
	for _, s := range systems {
		out = append(out, s.status())
	}

	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.VMID, b.VMID) })

	return out
}

func (f *Firmware) poweredOn() []*system {
	f.mu.Lock()
	defer f.mu.Unlock()

	out := make([]*system, 0, len(f.systems))
	for _, s := range f.systems {
		out = append(out, s)
	}

	return out
}

// nodes returns the nodes that run.
func (f *Firmware) nodes() []*node {
	var out []*node

	for _, s := range f.poweredOn() {
		s.mu.Lock()
		if s.node != nil {
			out = append(out, s.node)
		}
		s.mu.Unlock()
	}

	return out
}
