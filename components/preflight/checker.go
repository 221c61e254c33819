package preflight

import (
	"net/netip"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/hosts"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/preflight/vms"
)

// checker checks one plan.
type checker struct {
	*checks.Checker

	network Network
	// offered are free addresses that a problem has named.
	offered     map[netip.Addr]bool
	permissions permissions.Checker
	hosts       hosts.Checker
	vms         *vms.Checker
}

func newChecker(p *plan.Plan, proxmox checks.Proxmox, network Network) *checker {
	return checkerOf(checks.New(p, proxmox), network)
}

func checkerOf(shared *checks.Checker, network Network) *checker {
	return &checker{
		Checker: shared, network: network, offered: map[netip.Addr]bool{},
		permissions: permissions.Checker{Checker: shared}, hosts: hosts.Checker{Checker: shared}, vms: vms.New(shared),
	}
}

// report has what was read so far.
func (c *checker) report() *Report { return &Report{facts: c.Facts, missing: c.permissions.Missing} }
