package preflight

import (
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/hosts"
	"talos-proxmox/components/preflight/permissions"
)

// checker checks one plan.
type checker struct {
	*checks.Checker

	network Network
	// unstatedUnits are nodes with another CPU weight than that of new VMs, and none stated, by that weight.
	unstatedUnits map[int][]string
	// offered are free VMIDs and addresses that a problem has named.
	offered     map[string]bool
	permissions permissions.Checker
	hosts       hosts.Checker
}

func newChecker(p *plan.Plan, proxmox checks.Proxmox, network Network) *checker {
	shared := checks.New(p, proxmox)

	return &checker{
		Checker: shared, network: network, offered: map[string]bool{}, unstatedUnits: map[int][]string{},
		permissions: permissions.Checker{Checker: shared}, hosts: hosts.Checker{Checker: shared},
	}
}

// report has what was read so far.
func (c *checker) report() *Report { return &Report{facts: c.Facts, missing: c.permissions.Missing} }
