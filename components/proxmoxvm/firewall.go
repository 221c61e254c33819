package proxmoxvm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/luthermonson/go-proxmox"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/network"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/tokens"
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

	open, err := network.NewFirewallRules(ctx, name+tokens.FirewallRulesSuffix, &network.FirewallRulesArgs{
		NodeName: machineVM.NodeName, VmId: vmid.ToIntPtrOutput(), Rules: all,
	}, append(slices.Clone(opts),
		// The provider changes rules only where they are: it cannot add or remove one. They go with a VM that is replaced.
		pulumi.ReplaceOnChanges([]string{"rules", "vmId"}),
		// The rules of a VM are one list: what replaces them must not be there before they are gone.
		pulumi.DeleteBeforeReplace(true))...)
	if err != nil {
		return nil, err
	}

	return network.NewFirewallOptions(ctx, name+tokens.FirewallOptionsSuffix, &network.FirewallOptionsArgs{
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

// CheckRules refuses to let the provider write the firewall rules of a VM that has rules of others: it reads, changes
// and deletes rules by their position, and Proxmox VE puts each new rule before all others. Rules that go with their VM
// are not looked at. It runs before rules are made, changed or deleted, and in previews, where an answer is not needed.
func CheckRules(ctx context.Context, p *plan.Plan, api Proxmox, dryRun bool, args *pulumi.ResourceHookArgs) error {
	deleted := len(args.NewInputs) == 0

	inputs := hookutil.Inputs(args)
	vmid := int(hookutil.Number(inputs, "vmId"))

	pool, n, planned := vmidentity.NodeByVMID(p, vmid)
	if !planned || deleted && (p.Replaces(n.Name) || asPlanned(inputs, pool.FirewallRules())) {
		return nil
	}

	v, there, err := api.Find(ctx, vmid)
	if err == nil && !there {
		return nil
	}

	var rules []proxmox.FirewallRule
	if err == nil {
		rules, err = api.FirewallRules(ctx, v)
	}

	switch {
	case err != nil && dryRun:
		return nil
	case err != nil:
		return fmt.Errorf("could not read the firewall rules of %s: %w", n.Name, err)
	}

	for _, r := range rules {
		if !plan.WritesRule(r.Comment) {
			return fmt.Errorf("VM %d (%s) on host %s has a firewall rule that this program has not written, at position %d "+
				"(%s). The provider writes the rules of a VM by their position, and would change or delete that rule: nothing "+
				"is done. Open the port with firewall.open, delete the rule from the VM, and from the template that the VM was "+
				"cloned from, then run 'pulumi up' again", vmid, n.Name, v.Host, r.Pos, DescribeRule(r))
		}
	}

	return nil
}

// asPlanned says that the rules of the state are those of the plan: what deletes them deletes their VM.
func asPlanned(inputs resource.PropertyMap, rules []plan.FirewallRule) bool {
	same := func(v resource.PropertyValue, r plan.FirewallRule) bool {
		if v = hookutil.Unwrap(v); !v.IsObject() {
			return false
		}

		is := func(key resource.PropertyKey, want string) bool { return hookutil.String(v.ObjectValue(), key) == want }

		return is("comment", r.Comment) && is("proto", r.Protocol) && is("source", r.Sources) && is("dport", r.Ports) &&
			is("dest", r.Destinations)
	}
	held := hookutil.Unwrap(inputs["rules"])

	return held.IsArray() && slices.EqualFunc(held.ArrayValue(), rules, same)
}

// DescribeRule is a rule as the panel of Proxmox VE shows it.
func DescribeRule(r proxmox.FirewallRule) string {
	words := []string{r.Type, r.Action, r.Macro, r.Proto, r.Dport, strconv.Quote(r.Comment)}

	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" || w == `""` }), " ")
}
