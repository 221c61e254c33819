// Package permissions says which privileges nodes need on Proxmox VE, and checks that the credentials have them.
package permissions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// Checker checks what the credentials may do.
type Checker struct {
	*checks.Checker

	// Preview says that nothing is changed, so that credentials which may only read are enough.
	Preview bool
	// ReadOnly says that the credentials are such, for which Check sets it.
	ReadOnly bool
	// Denied says that a privilege is missing, which is why a request may have been refused. Check sets it.
	Denied bool
	// Held are the privileges that the credentials have. Check sets them.
	Held proxmoxapi.Permissions
	// Missing are the privileges that nodes that are there may need and the credentials lack. Check sets them.
	Missing Missing
}

// Check checks that the credentials may do all that new nodes need, and delete those that leave. What nodes
// that are there need is a warning, and an error once something changes that needs it.
func (c *Checker) Check(ctx context.Context) error {
	held, err := c.Proxmox.Permissions(ctx)
	if err != nil {
		return err
	}

	if c.ReadOnly = c.Preview && onlyAudits(held); c.ReadOnly {
		c.Warnings = append(c.Warnings, spec.Problem{Path: "proxmox", Rule: "the credentials are read-only, which " +
			"is enough for this preview: whether the credentials of the update have the required privileges was " +
			"not checked"})

		return nil
	}

	c.Held, c.Missing = held, Missing{}

	for _, n := range c.Plan.Nodes() {
		for _, needed := range Needed(c.Plan, n, 0) {
			if !c.Absent[n.VMID] && !granted(held, needed) && !c.inVNet(needed) {
				c.Missing[n.Name] = append(c.Missing[n.Name], missing{needed, needed.Paths[:1]})
			}
		}
	}

	c.CheckNew(held)

	for _, m := range c.missingPrivileges(held, true) {
		problem := m.problem(c.Major)
		problem.Rule += ", which existing nodes may need"
		c.Warnings = append(c.Warnings, problem)
	}

	for _, v := range c.UnplannedVMs() {
		for _, name := range []string{"VM.Allocate", "VM.PowerMgmt"} {
			needed := Privilege{Names: []string{name}, Paths: []string{fmt.Sprintf("/vms/%d", v.ID)}, For: "to remove " +
				v.Label()}
			if !granted(held, needed) && !onAnyPool(held, name) {
				c.Problems = append(c.Problems, missing{needed, needed.Paths}.problem(c.Major))
			}
		}
	}

	return nil
}

// CheckNew checks that privileges are enough for all that new nodes need.
func (c *Checker) CheckNew(held proxmoxapi.Permissions) {
	for _, m := range c.missingPrivileges(held, false) {
		if m.Optional {
			c.Warnings = append(c.Warnings, m.problem(c.Major))

			continue
		}

		c.Denied = true
		c.Problems = append(c.Problems, m.problem(c.Major))
	}
}

// onlyAudits says that credentials may look, and do nothing.
func onlyAudits(held proxmoxapi.Permissions) bool {
	some := false

	for _, listed := range held {
		for name := range listed {
			if !strings.HasSuffix(name, ".Audit") {
				return false
			}

			some = true
		}
	}

	return some
}

// onAnyPool says that a privilege is had on some resource pool: which one a VM is in that left the plan is not known.
func onAnyPool(held proxmoxapi.Permissions, name string) bool {
	for path := range held {
		if strings.HasPrefix(path, "/pool/") && held.On(path, name) {
			return true
		}
	}

	return false
}

// missingPrivileges are the privileges that the nodes need which are there, or those which are not, and the credentials
// lack.
func (c *Checker) missingPrivileges(held proxmoxapi.Permissions, there bool) []missing {
	var all []missing

	for _, n := range c.Plan.Nodes() {
		if c.Absent[n.VMID] == there {
			continue
		}

		template := 0
		if !there {
			template = c.Templates[n.Name]
		}

		for _, p := range Needed(c.Plan, n, template) {
			if granted(held, p) || c.inVNet(p) {
				continue
			}

			i := slices.IndexFunc(all, func(m missing) bool { return m.For == p.For && slices.Equal(m.Names, p.Names) })
			if i < 0 {
				i, all = len(all), append(all, missing{Privilege: p})
			}

			if !slices.Contains(all[i].paths, p.Paths[0]) {
				all[i].paths = append(all[i].paths, p.Paths[0])
			}
		}
	}

	return all
}

func granted(held proxmoxapi.Permissions, p Privilege) bool {
	if slices.ContainsFunc(p.Paths, func(path string) bool { return held.On(path, p.Names...) }) {
		return true
	}

	return len(p.AnyOf) > 0 && !slices.ContainsFunc(p.AnyOf,
		func(other Privilege) bool { return !granted(held, other) })
}

// inVNet says that a privilege is about a network whose zone is not known here. Proxmox VE shows it to those only who
// may use it, or see it.
func (c *Checker) inVNet(p Privilege) bool {
	name, ok := strings.CutPrefix(p.Paths[0], "/sdn/zones/localnetwork/")
	name, _, _ = strings.Cut(name, "/")

	return ok && c.VNets[name]
}
