// Package vms checks the VMs that Proxmox VE has: those of nodes, those that leave the plan, and those of others.
package vms

import (
	"errors"

	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
)

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

// endsChecks says that Proxmox VE does not answer, or does not answer these credentials. Of other errors, a check whose
// answer is only good to know makes a warning.
func endsChecks(err error) bool {
	return errors.Is(err, proxmoxapi.ErrUnreachable) || errors.Is(err, proxmoxapi.ErrOffline) ||
		errors.Is(err, proxmoxapi.ErrRefused)
}
