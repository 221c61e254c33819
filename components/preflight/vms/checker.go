// Package vms checks the VMs that Proxmox VE has: those of nodes, those that leave the plan, and those of others.
package vms

import "talos-proxmox/components/preflight/checks"

// Checker checks the VMs of a plan. An error of its checks says that Proxmox VE did not answer, or refused.
type Checker struct {
	*checks.Checker

	// unstatedUnits are nodes with another CPU weight than that of new VMs, and none set, by that weight.
	unstatedUnits map[int][]string
	// offered are free VMIDs that a problem has named.
	offered map[int]bool
	// withDisks are the VMIDs that disks have, as far as they were read.
	withDisks map[int]bool
}

// New returns the Checker that adds to what others have found.
func New(shared *checks.Checker) *Checker {
	return &Checker{Checker: shared, unstatedUnits: map[int][]string{}, offered: map[int]bool{}, withDisks: map[int]bool{}}
}
