package lab

import (
	"net/netip"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// The parts of a configuration are those of the world.
type (
	// Host is a Proxmox VE node with its bridges and storages.
	Host = world.Host
	// Storage is a datastore of a host.
	Storage = world.Storage
	// Template is a VM that is there from the start.
	Template = world.Template
	// Credentials are what Proxmox VE accepts.
	Credentials = world.Credentials
	// Latencies says how long things take.
	Latencies = timeline.Latencies
)

// DefaultLatencies is something a person can watch.
func DefaultLatencies() Latencies { return timeline.DefaultLatencies() }

// Config describes a lab.
type Config struct {
	// Hosts are the Proxmox VE nodes; the first is the one that answers.
	Hosts     []Host
	Templates []Template
	// Reservations are what DHCP gives out: addresses by MAC address, in any spelling.
	Reservations map[string]netip.Addr
	// Network is the loopback network of the lab; nil: Start reserves one. The lab gives it back when it is closed.
	Network *Reservation
	// Credentials are what Proxmox VE accepts; zero: made up by Start.
	Credentials Credentials
	// Latencies say how long things take; zero: no time at all.
	Latencies Latencies
	// Firmware makes what runs in the VMs; nil: nothing runs in them.
	Firmware func(Services) machine.Firmware
}

// Services is what the lab offers to what runs in its VMs.
type Services struct {
	// Network is where addresses must come from.
	Network netip.Prefix
	// DHCP answers for a MAC address, in any spelling; false: nobody reserved an address for it.
	DHCP      func(mac string) (netip.Addr, bool)
	Journal   *journal.Journal
	Timeline  *timeline.Timeline
	Latencies Latencies
}
