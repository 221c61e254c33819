package proxmoxvm

import (
	"slices"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/network"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// newFirewall closes a VM for everything that the rules do not let in. It has an effect where Proxmox VE's firewall is
// on for the whole datacenter, which is the operator's matter.
func newFirewall(ctx *pulumi.Context, name string, rules []plan.FirewallRule, machineVM *vm.VirtualMachine,
	vmid pulumi.IntOutput, opts ...pulumi.ResourceOption,
) (pulumi.Resource, error) {
	all := network.FirewallRulesRuleArray{}

	for _, r := range rules {
		rule := network.FirewallRulesRuleArgs{
			Type: pulumi.String("in"), Action: pulumi.String("ACCEPT"), Proto: pulumi.String(r.Protocol),
			Source:  pulumi.String(r.Sources),
			Comment: pulumi.String(r.Comment), Enabled: pulumi.Bool(true),
		}
		if r.Ports != "" {
			rule.Dport = pulumi.String(r.Ports)
		}

		if r.Destinations != "" {
			rule.Dest = pulumi.String(r.Destinations)
		}

		all = append(all, rule)
	}

	open, err := network.NewFirewallRules(ctx, name+"-rules", &network.FirewallRulesArgs{
		NodeName: machineVM.NodeName, VmId: vmid.ToIntPtrOutput(), Rules: all,
	}, append(slices.Clone(opts),
		// The provider changes rules only where they are: it cannot add or remove one. They go with a VM that is replaced.
		pulumi.ReplaceOnChanges([]string{"rules", "vmId"}),
		// The rules of a VM are one list: what replaces them must not be there before they are gone.
		pulumi.DeleteBeforeReplace(true))...)
	if err != nil {
		return nil, err
	}

	return network.NewFirewallOptions(ctx, name+"-firewall", &network.FirewallOptionsArgs{
		NodeName: machineVM.NodeName, VmId: vmid.ToIntPtrOutput(), Enabled: pulumi.Bool(true),
		InputPolicy: pulumi.String("DROP"), OutputPolicy: pulumi.String("ACCEPT"),
		// The node speaks DHCP and finds its neighbours; it cannot use the MAC address of another machine.
		Dhcp: pulumi.Bool(true), Ndp: pulumi.Bool(true), Radv: pulumi.Bool(false), Macfilter: pulumi.Bool(true),
		Ipfilter:   pulumi.Bool(false),
		LogLevelIn: pulumi.String("nolog"), LogLevelOut: pulumi.String("nolog"),
	}, append(slices.Clone(opts),
		// Closed only when what is needed is let in.
		pulumi.DependsOn([]pulumi.Resource{open}), pulumi.ReplaceOnChanges([]string{"vmId"}),
		pulumi.DeleteBeforeReplace(true))...)
}
