// Package checks has what the preflight checks share: what is known of Proxmox VE, and the problems that they find.
package checks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// Checker carries a plan while it is checked, and what is found. Checks go on after a problem, so that all are found.
type Checker struct {
	Facts

	Plan    *plan.Plan
	Proxmox Proxmox
	// VMs are all that Proxmox VE has, templates and containers among them.
	VMs []proxmoxapi.VM
	// Unreachable are the hosts that were asked and do not answer, with why.
	Unreachable map[string]error
	// Unavailable are the hosts that cannot have new nodes, which a problem says: they do not exist, are offline, or do
	// not answer.
	Unavailable map[string]bool
	// VNets are the bridges that belong to a software-defined network.
	VNets    map[string]bool
	Problems spec.Problems
	Warnings spec.Problems

	// stores are the datastores of the hosts that were asked, by the host's name.
	stores map[string]map[string]proxmoxapi.Store
	// bridges are those of the hosts that were asked, likewise.
	bridges map[string][]proxmoxapi.Bridge
}

// Facts are what the checks have read from Proxmox VE for those who make the resources.
type Facts struct {
	// Major is the first number of Proxmox VE's version.
	Major int
	// Templates are the VMIDs of the templates to clone, by node name. A node is left out when its VM exists and the
	// template is gone.
	Templates map[string]int
	// Devices are the GPUs to pass through, by node name; left out likewise, and when the host of a node that exists is
	// unreachable.
	Devices map[string]proxmoxapi.PCIDevice
	// Incomplete are the names of nodes whose VM was only partially created.
	Incomplete []string
	// SharedImages says that all hosts see what one of them downloads.
	SharedImages bool
	// Absent are the VMIDs of nodes whose VM is not there yet: what a VM was made from does no harm when it is gone later.
	Absent map[int]bool
	// Identified are the VMs that have VMIDs of the plan, as far as Proxmox VE tells which they are.
	Identified map[int]vmidentity.Found
	// States are those of the VMs that are there, by node name.
	States map[string]proxmoxvm.State
	// UserData are the files of user data that hosts had, by host; of a host that is left out, it is not known.
	UserData map[string]map[string]int64
	// Replacements are the problems that new VMs of nodes in lifecycle.replace would have, by node name. Whether a name
	// there had its effect already, the state says alone.
	Replacements map[string]spec.Problems
	// HAMarks are those in the comments of HA resources, by node name.
	HAMarks map[string]int
}

// New returns the Checker of a plan, which has not read anything yet.
func New(p *plan.Plan, proxmox Proxmox) *Checker {
	return &Checker{
		Plan: p, Proxmox: proxmox, Unreachable: map[string]error{}, Unavailable: map[string]bool{},
		VNets: map[string]bool{}, stores: map[string]map[string]proxmoxapi.Store{}, bridges: map[string][]proxmoxapi.Bridge{},
		Facts: Facts{
			Templates: map[string]int{}, Devices: map[string]proxmoxapi.PCIDevice{}, Absent: map[int]bool{},
			Identified: map[int]vmidentity.Found{}, States: map[string]proxmoxvm.State{}, HAMarks: map[string]int{},
			UserData: map[string]map[string]int64{}, Replacements: map[string]spec.Problems{},
		},
	}
}

// Recreates says that this update makes the VM of a node again.
func (c *Checker) Recreates(n plan.Node) bool {
	return c.Plan.Replaces(n.Name) || slices.Contains(c.Incomplete, n.Name)
}

// AsNew returns a Checker that shares what was read, to which one node alone is yet to be made.
func (c *Checker) AsNew(n plan.Node) *Checker {
	other := New(c.Plan, c.Proxmox)
	other.Major, other.VMs, other.Unreachable = c.Major, c.VMs, c.Unreachable
	other.stores, other.bridges = c.stores, c.bridges
	other.Absent[n.VMID] = true

	return other
}

// MaxReaders bounds how many VMs are asked at once for what takes them long.
const MaxReaders = 8

// EndChecks says that Proxmox VE does not answer, or does not answer these credentials. Of other errors, a check whose
// answer is only good to know makes a warning.
func EndChecks(err error) bool {
	return errors.Is(err, proxmoxapi.ErrUnreachable) || errors.Is(err, proxmoxapi.ErrOffline) ||
		errors.Is(err, proxmoxapi.ErrRefused)
}

// UpTo names the first of a list, and how many more there are.
func UpTo(names []string, count int) string {
	if len(names) <= count {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:count], ", "), len(names)-count)
}

// OtherRanges are those of all pools but one.
func OtherRanges[T any](p *plan.Plan, pool string, of func(plan.PlannedPool) []plan.Span[T]) []plan.Span[T] {
	var all []plan.Span[T]

	for _, other := range p.Pools {
		if other.Name != pool {
			all = append(all, of(other)...)
		}
	}

	return all
}
