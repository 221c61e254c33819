package talos

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// EventKind is a kind of thing that happens to a node.
type EventKind string

// What happens to nodes. An event that a client asked for is noted when the node has taken it on.
const (
	// Booted is a boot of an installed and configured system; the detail is the version and the schematic.
	Booted EventKind = "boot"
	// Applied is a configuration that differs from the one before and took effect at once.
	Applied EventKind = "apply"
	// Staged is one that takes effect with the next boot.
	Staged EventKind = "stage"
	// Rebooted is a reboot, also one for a configuration's sake.
	Rebooted EventKind = "reboot"
	// Upgraded is an upgrade that was accepted, or a reboot into a system that was installed before; the detail is "from
	// version and schematic to version and schematic".
	Upgraded EventKind = "upgrade"
	// Installing is an installer that begins while the node goes on; the detail is that of Upgraded.
	Installing EventKind = "install"
	// UpgradeFailed is one whose installer failed: the node keeps what it had.
	UpgradeFailed EventKind = "upgrade failed"
	// FellBack is a new system that did not come up and was replaced by the one before.
	FellBack EventKind = "fall back"
	// WasReset and WasShutDown are what a client or the hypervisor asked for.
	WasReset    EventKind = "reset"
	WasShutDown EventKind = "shutdown"
	// LeftEtcd is a control plane that left etcd of its own accord.
	LeftEtcd EventKind = "leave etcd"
)

// Event is one event.
type Event struct {
	Time   time.Time
	Node   string // the name of the VM
	Kind   EventKind
	Detail string
}

func (h Event) String() string {
	s := h.Node + ": " + string(h.Kind)
	if h.Detail != "" {
		s += " (" + h.Detail + ")"
	}

	return s
}

// Outage is the time in which a node that had been up was down: from the end of its pods until its services run and its
// Node is Ready again.
type Outage struct {
	Node string // the name of the VM
	Role string // "controlplane" or "worker"
	Why  string // "reboot", "upgrade", "shutdown", "reset" or "power cut"
	From time.Time
	To   time.Time // zero while it lasts
}

// history is the memory of what happened to the nodes of a world.
type history struct {
	mu      sync.Mutex
	events  []Event
	outages []Outage
}

func (h *history) note(node string, kind EventKind, detail string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, Event{Time: time.Now(), Node: node, Kind: kind, Detail: detail})
}

func (h *history) down(node, role, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	if !slices.ContainsFunc(h.outages, func(o Outage) bool { return o.Node == node && o.To.IsZero() }) {
		h.outages = append(h.outages, Outage{Node: node, Role: role, Why: why, From: time.Now()})
	}
}

func (h *history) up(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()

	for i := range h.outages {
		if o := &h.outages[i]; o.Node == node && o.To.IsZero() {
			o.To = time.Now()
		}
	}
}

// Events returns what happened to the nodes since a time, in order.
func (f *Firmware) Events(since time.Time) []Event {
	f.history.mu.Lock()
	defer f.history.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(f.history.events), func(h Event) bool { return h.Time.Before(since) })
}

// Outages returns the times in which nodes were down that had not ended before a time, in the order of their
// beginnings.
func (f *Firmware) Outages(since time.Time) []Outage {
	f.history.mu.Lock()
	defer f.history.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(f.history.outages),
		func(o Outage) bool { return !o.To.IsZero() && o.To.Before(since) })
}

// MostDown returns how many of some outages there were at once at most, with the instant at which it came to that.
func MostDown(outages []Outage) (most int, at time.Time) {
	for _, o := range outages {
		n := 0

		for _, other := range outages {
			if !other.From.After(o.From) && (other.To.IsZero() || other.To.After(o.From)) {
				n++
			}
		}

		if n > most {
			most, at = n, o.From
		}
	}

	return most, at
}

// describe is a version with its schematic.
func (i *Image) describe() string {
	if i.ID == "" {
		return i.Version
	}

	return fmt.Sprintf("%s %.8s", i.Version, i.ID)
}
