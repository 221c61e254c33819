package preflight

import (
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
)

// checker checks one plan.
type checker struct {
	*checks.Checker

	network Network
	now     func() time.Time
	// unstatedUnits are nodes with another CPU weight than that of new VMs, and none stated, by that weight.
	unstatedUnits map[int][]string
	// offered are free VMIDs and addresses that a problem has named.
	offered map[string]bool
	// preview says that nothing is changed, so that credentials which may only read are enough; readOnly: these are such.
	preview, readOnly bool
	// denied says that a privilege is missing, which is why a request may have been refused.
	denied bool
	// missing are the privileges that the credentials lack, by the name of a node that is there.
	missing map[string][]missingPrivilege
}

func newChecker(p *plan.Plan, proxmox checks.Proxmox, network Network) *checker {
	return &checker{
		Checker: checks.New(p, proxmox), network: network, now: time.Now, offered: map[string]bool{},
		unstatedUnits: map[int][]string{}, missing: map[string][]missingPrivilege{},
	}
}

// report has what was read so far.
func (c *checker) report() *Report { return &Report{facts: c.Facts, missing: c.missing} }
