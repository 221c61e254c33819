package hosts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// CheckUnreachableHosts names the hosts that do not answer, and what cannot be done there. It blocks nothing on other
// hosts.
func (c Checker) CheckUnreachableHosts(ctx context.Context) error {
	if len(c.Unreachable) == 0 {
		return nil
	}

	hosts, err := c.Proxmox.Hosts(ctx)
	if checks.EndChecks(err) {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(c.Unreachable)) {
		var nodes []string

		for _, n := range c.Plan.Nodes() {
			if slices.ContainsFunc(c.VMs, func(v proxmoxapi.VM) bool { return v.ID == n.VMID && v.Host == name }) {
				nodes = append(nodes, n.Name)
			}
		}

		if len(nodes) == 0 {
			continue
		}

		rule := "does not answer, though the cluster sees it"

		switch i := slices.IndexFunc(hosts, func(h proxmoxapi.Host) bool { return h.Name == name }); {
		case err != nil:
			rule = fmt.Sprintf("does not answer, and could not be determined to be online (%v)", err)
		case i >= 0 && !hosts[i].Online:
			rule = "is offline"
		}

		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "proxmox.hosts", Value: name,
			Rule: fmt.Sprintf("%s: the state of the VMs of %s is unknown, and none of them can be changed or deleted", rule,
				strings.Join(nodes, ", ")),
			Remedy: "start it, or check its daemons ('systemctl status pveproxy pvedaemon'); nodes on other hosts " +
				"can be changed",
		})
	}

	return nil
}
