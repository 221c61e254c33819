package preflight

import (
	"context"
	"net/netip"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checks are the checks of one plan.
type checks struct {
	plan    *plan.Plan
	proxmox Proxmox
	network Network
	now     func() time.Time

	vms []proxmoxapi.VM
	// unreachable are the hosts that were asked and do not answer, with why.
	unreachable map[string]error
	// absent are the VMIDs of nodes whose VM is not there yet: what a VM was made from does no harm when it is gone later.
	absent map[int]bool
	// stores are the datastores of the hosts that were asked, by the host's name.
	stores map[string]map[string]proxmoxapi.Store
	// bridges are those of the hosts that were asked, likewise.
	bridges map[string][]proxmoxapi.Bridge
	// unstatedUnits are nodes with another CPU weight than that of new VMs, and none stated, by that weight.
	unstatedUnits map[int][]string
	// offered are free VMIDs and addresses that a problem has named.
	offered map[string]bool
	// vnets are the bridges that belong to a software-defined network.
	vnets map[string]bool
	// preview says that nothing is changed, so that credentials which may only read are enough; readOnly: these are such.
	preview, readOnly bool
	// denied says that a privilege is missing, which is why a request may have been refused.
	denied   bool
	report   *Report
	problems spec.Problems
	warnings spec.Problems
}

// Network is what is asked of the network of the nodes; Dialer answers it.
type Network interface {
	// Listening returns the port on which a machine listens at an address; 0 when none seems to.
	Listening(ctx context.Context, address netip.Addr) int
	// Extensions are the names of the extensions that an Image Factory has for a version of Talos.
	Extensions(ctx context.Context, factory, talos string) ([]string, error)
}
