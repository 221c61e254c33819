package lab

import (
	"net/netip"
	"time"

	"talos-proxmox/tests/lab/factory"
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
	// HAGroup is a group of hosts for high availability.
	HAGroup = world.HAGroup
	// Credentials are what Proxmox VE accepts.
	Credentials = world.Credentials
	// Schematic is what an image of the factory is made of.
	Schematic = factory.Schematic
	// Asset is an image of the factory.
	Asset = factory.Asset
	// Download is one that a host made.
	Download = world.Download
	// Latencies says how long things take.
	Latencies = timeline.Latencies
)

// DefaultLatencies is something a person can watch.
func DefaultLatencies() Latencies { return timeline.DefaultLatencies() }

// Config describes a lab.
type Config struct {
	// Version of Proxmox VE; empty: the newest that the lab knows.
	Version world.Version
	// Hosts are the Proxmox VE nodes; the first is the one that answers.
	Hosts     []Host
	Templates []Template
	// Pools are the resource pools that there are from the start.
	Pools []string
	// HAGroups are the groups of high availability.
	HAGroups []HAGroup
	// Factory configures the Image Factory; its journal is the lab's.
	Factory factory.Options
	// Schematics are those that the factory knows from the start, in addition to the plain one.
	Schematics []*Schematic
	// Files are what the operator has put on storages.
	Files []File
	// Reservations are what DHCP has reserved: addresses by MAC address, in any spelling. An invalid address says that
	// nothing is ever given to that machine.
	Reservations map[string]netip.Addr
	// DHCP is what is given to machines without a reservation; empty: nothing is.
	DHCP Range
	// Network is the loopback network of the lab; nil: Start reserves one. The lab gives it back when it is closed.
	Network *Reservation
	// Credentials are what Proxmox VE accepts; zero: made up by Start.
	Credentials Credentials
	// SSH is the login to the hosts.
	SSH SSH
	// Broadcast is how often hosts say what has become of their VMs; 0: whenever they are asked.
	Broadcast time.Duration
	// Latencies say how long things take; zero: no time at all.
	Latencies Latencies
	// Firmware makes what runs in the VMs; nil: nothing runs in them.
	Firmware func(Services) machine.Firmware
}

// File is an image as a file on a storage, "local:iso/talos-1.12.4.iso".
type File struct {
	Storage, Name string
	// Hosts have it, each for itself unless the storage is shared; empty: all that have the storage.
	Hosts []string
	// Asset is what the file is.
	Asset Asset
}

// Services is what the lab offers to what runs in its VMs.
type Services struct {
	// Network is where addresses must come from.
	Network netip.Prefix
	// DHCP answers for a MAC address, in any spelling; false: there is no address for it.
	DHCP func(mac string) (netip.Addr, bool)
	// Factory knows the schematics of images and installers.
	Factory   *factory.Factory
	Journal   *journal.Journal
	Timeline  *timeline.Timeline
	Latencies Latencies
}
