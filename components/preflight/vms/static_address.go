package vms

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checkStaticAddresses refuses another address for a node that exists and has its address from its cloud-init drive:
// the drive is written when the VM is made, and the program would look for the node where it is not, or take another
// machine for it. The guest agent tells whether the operator has changed the node by hand.
func (c *Checker) checkStaticAddresses(ctx context.Context, nodes []plan.Node, vms []proxmoxapi.VM,
	settings []*proxmoxapi.Settings,
) {
	for i, n := range nodes {
		if settings[i] == nil || settings[i].Current == nil || c.Recreates(n) || n.CloudInit == "" ||
			c.Plan.Addressing != spec.AddressingStatic || c.Plan.Teardown || !n.Address.IsValid() {
			continue
		}

		has, known := driveAddress(proxmoxapi.Properties(settings[i].Current["ipconfig0"]), n.Address)
		if !known || has.Addr() == n.Address {
			continue
		}

		reported, asked := c.reports(ctx, n, vms[i])
		if reported {
			continue
		}

		problem := spec.Problem{
			Path: "pools." + n.Pool + ".addresses", Value: n.Address.String(),
			Rule: fmt.Sprintf("applies to new nodes only, and %s was made with %s", n.Name, has.Addr()),
			Remedy: "put the former address back (an address belongs to the place of a node in its pool), or name the node " +
				"in lifecycle.replace",
		}

		// A change by hand would show in the answer of the agent, and Talos takes its address from the drive at each start.
		if c.Plan.Distribution == spec.DistributionTalos && !n.Agent {
			problem.Remedy += fmt.Sprintf("; if the node has the new address already, run 'qm set %d --ipconfig0 "+
				"%s=%s,%s=%s' on host %s", n.VMID, driveKey("ip", n.Address),
				netip.PrefixFrom(n.Address, c.Plan.Network.Bits()), driveKey("gw", c.Plan.Gateway), c.Plan.Gateway, vms[i].Host)
		}

		switch {
		case c.Plan.Bootstrap == spec.BootstrapExternal:
			// Nothing is done to the node, and its operator may have changed it.
			problem.Remedy = "change the node by hand, or put the former address back"
			c.Warnings = append(c.Warnings, problem)
		case !asked:
			problem.Rule += ", and its guest agent does not say whether that was changed by hand"
			c.Warnings = append(c.Warnings, problem)
		default:
			c.Problems = append(c.Problems, problem)
		}
	}
}

// driveAddress is the address that a cloud-init drive gives, of the family of another one if it gives both. A drive
// that asks DHCP gives none.
func driveAddress(drive map[string]string, planned netip.Addr) (netip.Prefix, bool) {
	for _, key := range []string{driveKey("ip", planned), "ip", "ip6"} {
		if has, err := netip.ParsePrefix(drive[key]); err == nil {
			return has, true
		}
	}

	return netip.Prefix{}, false
}

// driveKey is what a cloud-init drive calls a setting of an address.
func driveKey(key string, a netip.Addr) string {
	if a.Is6() {
		return key + "6"
	}

	return key
}

// reports says that the guest agent of a VM reports the planned address of its node, and whether that is known: it has
// no agent, or the agent was asked.
func (c *Checker) reports(ctx context.Context, n plan.Node, v proxmoxapi.VM) (reported, known bool) {
	if !n.Agent {
		return false, true
	}

	if v.Stopped {
		return false, false
	}

	links, err := c.Proxmox.Links(ctx, v)

	return slices.ContainsFunc(links, func(l proxmoxapi.Link) bool {
		return slices.Contains(l.Addresses, n.Address)
	}), err == nil
}
