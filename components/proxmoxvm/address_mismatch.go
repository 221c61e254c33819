package proxmoxvm

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// CompareAddress is the warning for a node whose guest agent reports other addresses than the planned one; nil: it
// reports the planned address, or none yet.
func CompareAddress(n plan.Node, links []proxmoxapi.Link) *spec.Problem {
	if !n.Address.IsValid() {
		return nil
	}

	// An interface may get its addresses of the other family earlier.
	family, _ := n.Address.Prefix(0) // valid for each address

	reported := proxmoxapi.AddressesOf(n.MAC, links, family, netip.Addr{})
	if len(reported) == 0 || slices.Contains(reported, n.Address) {
		return nil
	}

	texts := make([]string, len(reported))
	for i, a := range reported {
		texts[i] = a.String()
	}

	return &spec.Problem{
		Path: "pools." + n.Pool + ".addresses", Value: n.Address.String(),
		Rule: fmt.Sprintf("%s is planned with another address than its guest agent reports: %s", n.Name,
			strings.Join(texts, ", ")),
		Remedy: fmt.Sprintf("correct what gives %s its address, such as a reservation of the DHCP server, and restart the "+
			"node; or set the reported address", n.MAC),
	}
}

// WarnOnAddress compares the address of a node that was just created with what the provider has read from its guest
// agent. Of a node that exists, the provider's answer may be old: the preflight checks ask its agent.
func WarnOnAddress(ctx *pulumi.Context, n plan.Node, machineVM *vm.VirtualMachine) {
	pulumi.All(machineVM.NetworkInterfaceNames, machineVM.MacAddresses, machineVM.Ipv4Addresses,
		machineVM.Ipv6Addresses).ApplyT(func(seen []any) error {
		links := linksOf(seen[0].([]string), seen[1].([]string), seen[2].([][]string), seen[3].([][]string))
		if problem := CompareAddress(n, links); problem != nil {
			return ctx.Log.Warn(problem.String(), nil)
		}

		return nil
	})
}
