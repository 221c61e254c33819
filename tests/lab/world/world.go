// Package world is the state behind the lab's Proxmox VE: hosts, virtual machines, storages, tasks, pools, resource
// mappings, and who may do what. It knows nothing of HTTP, but it answers as Proxmox VE does: its errors carry the
// status and the text that Proxmox VE (qemu-server 8 and 9) would send, because clients read that text.
package world

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
)

// Options says what a world starts with.
type Options struct {
	// Version of Proxmox VE; empty: the newest.
	Version Version
	Hosts   []Host
	// HAGroups are the groups of high availability.
	HAGroups []HAGroup
	// Credentials are what the world accepts: a token and a user, both of which may do everything.
	Credentials Credentials
	// Broadcast is how often hosts say what has become of their VMs (pvestatd: 10 s); 0: whenever they are asked.
	Broadcast time.Duration
	// Firmware boots what VMs find on their disks; nil: VMs run, but nothing runs in them.
	Firmware machine.Firmware
	// Timeline takes the latencies; nil: one of the world's own.
	Timeline  *timeline.Timeline
	Latencies timeline.Latencies
}

// World is one Proxmox VE cluster. All its methods may be called at the same time.
type World struct {
	version   Version
	ctx       context.Context
	cancel    context.CancelFunc
	wait      sync.WaitGroup
	firmware  machine.Firmware
	timeline  *timeline.Timeline
	latencies timeline.Latencies
	every     time.Duration // a broadcast

	mu       sync.Mutex
	closed   bool
	hosts    []*Host
	storages []*Storage
	vms      map[int]*vm
	volumes  map[volumeKey]*volume
	pools    map[string]*pool
	mappings map[string]*Mapping
	tasks    map[string]*task
	access   access
	counter  int
	groups   []HAGroup
	rules    []HARule
	// ha is what high availability looks after, by VMID.
	ha map[int]*HAResource
	// firewall is the cluster's, firewalls are the VMs'.
	firewall  *firewall
	firewalls map[int]*firewall
	// full are the datastores without room; noQuorum says that the files of the cluster are read-only.
	full     map[string]bool
	noQuorum bool
	// silent are the VMs whose guest agent never answers.
	silent    map[int]bool
	downloads []Download
	born      time.Time
}

// New makes a world.
func New(o Options) (*World, error) {
	ctx, cancel := context.WithCancel(context.Background())

	w := &World{
		version:   cmp.Or(o.Version, Version9),
		ctx:       ctx,
		cancel:    cancel,
		firmware:  o.Firmware,
		timeline:  o.Timeline,
		latencies: o.Latencies,
		every:     o.Broadcast,
		vms:       map[int]*vm{},
		volumes:   map[volumeKey]*volume{},
		pools:     map[string]*pool{},
		mappings:  map[string]*Mapping{},
		silent:    map[int]bool{},
		full:      map[string]bool{},
		firewall:  newFirewall(),
		firewalls: map[int]*firewall{},
		groups:    o.HAGroups,
		ha:        map[int]*HAResource{},
		tasks:     map[string]*task{},
		born:      time.Now(),
	}

	if w.firmware == nil {
		w.firmware = noFirmware{}
	}

	if w.timeline == nil {
		w.timeline = timeline.New()
	}

	for _, h := range o.Hosts {
		if err := w.addHost(h); err != nil {
			cancel()

			return nil, err
		}
	}

	w.access.init(o.Credentials, w.version.Privileges())
	w.access.predefined = w.version.Roles()

	return w, nil
}

// Close cuts the power of every VM, ends every task and returns when nothing of the world runs any more.
func (w *World) Close() {
	w.mu.Lock()
	w.closed = true
	running := make([]*vm, 0, len(w.vms))
	for _, v := range w.vms {
		running = append(running, v)
	}
	w.mu.Unlock()

	w.cancel()

	for _, v := range running {
		w.powerOff(v)
	}

	w.wait.Wait()
}

// Version of Proxmox VE.
func (w *World) Version() Version {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.version
}

// Caller is on whose behalf something is done.
type Caller struct {
	// ID is a user ("root@pam") or an API token ("pulumi@pve!talos").
	ID string
	// Task is what befalls the task that the call starts; nil: nothing.
	Task *TaskFault
	// manager calls are those of high availability itself.
	manager bool
}

// TaskFault makes a task end with Message as its exit status.
type TaskFault struct {
	Message string
	// Late lets the task do its work first: the error is all that went wrong.
	Late bool
	// Hang is how long it does nothing before its work; it can be stopped.
	Hang time.Duration
}

// Error is a refusal as Proxmox VE words it.
type Error struct {
	Code   int
	Reason string
	// Fields are the complaints about single parameters.
	Fields map[string]string
}

func (e *Error) Error() string {
	text := e.Reason

	for _, field := range sortedKeys(e.Fields) {
		text += fmt.Sprintf(" (%s: %s)", field, e.Fields[field])
	}

	return text
}

// failf is what Proxmox VE answers when a method dies: status 500 and the reason.
func failf(format string, args ...any) *Error {
	return &Error{Code: 500, Reason: fmt.Sprintf(format, args...)}
}

// Invalid is what Proxmox VE answers to a parameter that does not verify.
func Invalid(field, format string, args ...any) *Error {
	return &Error{
		Code:   400,
		Reason: "Parameter verification failed.",
		Fields: map[string]string{field: fmt.Sprintf(format, args...)},
	}
}

func sortedKeys[K ~string | ~int, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)

	return keys
}
