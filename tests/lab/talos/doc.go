// Package talos plays Talos Linux in the lab's virtual machines. [Firmware] boots what the hardware offers; what comes
// up behaves like a Talos node as far as its API shows: maintenance mode, installation, reboot, mutual TLS from the
// configuration it was given, etcd, Kubernetes.
//
// The specification is Talos itself, version 1.12: its machinery loads and validates configuration, defines the API's
// messages and the resources; where behaviour is copied the comment names the file of the Talos repository that has it.
//
// Not played are what needs a machine underneath: containers, processes, files, packets. Methods that would show them
// are refused and recorded.
//
// Tests break nodes ([Firmware.Break]) and registries ([Firmware.Withdraw]), and read what came of it:
// [Firmware.Quorum], how the votes of etcd stood at each instant; [Firmware.Happenings], what was done to nodes;
// [Firmware.Outages], when they were down.
//
// A node knows nothing that a real one would not know: other nodes are found through their addresses and spoken to over
// the network. Only two things are shared inside one Firmware: the discovery service, and what the members of an etcd
// cluster agree on. With [Options.Upstream], the latter is etcd's own: control planes run real members and API servers.
package talos
