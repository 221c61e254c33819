package proxmoxvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/wait"
)

// HARulesMajor is the first version of Proxmox VE with rules in place of groups.
const HARulesMajor = 9

// GroupRule is the rule that Proxmox VE makes of a group when it is upgraded to version 9.
func GroupRule(group string) string { return "ha-group-" + group }

// hasHARules says that rules of the program say where a node's VM runs.
func hasHARules(n plan.Node) bool { return n.HA.Places() }

// RuleOf is the rule that places the VM of a node on Proxmox VE 9; empty: none does.
func RuleOf(n plan.Node) string {
	switch {
	case n.HAGroup != "":
		return GroupRule(n.HAGroup)
	case n.HA != nil && len(n.HA.Hosts) > 0:
		return n.Cluster + "-" + n.Pool
	case n.HA != nil && n.HA.Apart:
		return n.Cluster + "-" + n.Pool + apartSuffix
	default:
		return ""
	}
}

const apartSuffix = "-apart"

// haComment is the comment of the HA resource of a node with rules: whose it is, and what the rules are to be. Its
// change is what lets a hook change the rules.
func haComment(n plan.Node) string {
	if !hasHARules(n) {
		return ""
	}

	comment := ruleComment(n) + ":"
	if len(n.HA.Hosts) > 0 {
		comment += " hosts " + strings.Join(n.HA.Hosts, " ")
	}

	if n.HA.Strict {
		comment += " only"
	}

	if n.HA.Apart {
		comment += " apart"
	}

	return comment
}

// ruleComment says whose a rule is. Names of clusters are unique on a Proxmox VE.
func ruleComment(n plan.Node) string {
	return fmt.Sprintf("talos-proxmox cluster %s pool %s", n.Cluster, n.Pool)
}

func sid(n plan.Node) string { return "vm:" + strconv.Itoa(n.VMID) }

// HARules keep the rules of high availability as the plan says. The provider has none.
type HARules struct {
	Plan     *plan.Plan
	Proxmox  Proxmox
	Progress wait.Reporter

	mu sync.Mutex
}

// Apply is a hook that runs after the HA resource of a node was made or changed. Proxmox VE takes VMs out of rules
// itself when they leave high availability.
func (h *HARules) Apply(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	id, is := strings.CutPrefix(hookutil.String(args.NewInputs, "resourceId"), "vm:")
	if !is {
		return nil
	}

	vmid, err := strconv.Atoi(id)
	if err != nil {
		return err
	}

	_, n, there := NodeByVMID(h.Plan, vmid)
	if !there {
		return fmt.Errorf("VM %d is none of the plan: its rules of high availability are left alone", vmid)
	}

	// Rules are read, changed and written, and nodes are made side by side.
	h.mu.Lock()
	defer h.mu.Unlock()

	if n.HAGroup != "" {
		return h.join(ctx, n)
	}

	members, err := h.members(ctx, n)
	if err != nil {
		return err
	}

	var errs []error

	for _, wanted := range haRules(n, members) {
		// Each change gives the rules another digest.
		rules, err := h.Proxmox.HARules(ctx)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}

		errs = append(errs, h.set(ctx, rules, wanted))
	}

	return errors.Join(errs...)
}

// haRules are the rules of the pool of a node. One without hosts, or with less than two VMs to keep apart, is not made.
func haRules(n plan.Node, members []string) []proxmoxapi.HARule {
	name := n.Cluster + "-" + n.Pool
	nodes := proxmoxapi.HARule{
		Name: name, Kind: proxmoxapi.HANodes, Comment: ruleComment(n), Resources: members, Nodes: n.HA.Hosts,
		Strict: n.HA.Strict,
	}
	apart := proxmoxapi.HARule{Name: name + apartSuffix, Kind: proxmoxapi.HAApart, Comment: ruleComment(n)}

	if len(n.HA.Hosts) == 0 {
		nodes.Resources = nil
	}

	if n.HA.Apart && len(members) > 1 {
		apart.Resources = members
	}

	// VMs are not both kept apart and on hosts with priorities: what is to go, goes first.
	if len(apart.Resources) == 0 {
		return []proxmoxapi.HARule{apart, nodes}
	}

	return []proxmoxapi.HARule{nodes, apart}
}

// members are the VMs of the pool of a node that are under high availability already, by the program: it has written
// their comments.
func (h *HARules) members(ctx context.Context, n plan.Node) ([]string, error) {
	comments, err := h.Proxmox.HAComments(ctx)
	if err != nil {
		return nil, err
	}

	var found []string

	for _, other := range h.Plan.Nodes() {
		if other.Pool == n.Pool && strings.HasPrefix(comments[sid(other)], ruleComment(n)+":") {
			found = append(found, sid(other))
		}
	}

	slices.Sort(found)

	return found, nil
}

// set makes, changes or removes a rule. One that has VMs of others, or another comment, belongs to others.
func (h *HARules) set(ctx context.Context, rules []proxmoxapi.HARule, wanted proxmoxapi.HARule) error {
	at := slices.IndexFunc(rules, func(r proxmoxapi.HARule) bool { return r.Name == wanted.Name })

	if at >= 0 {
		if err := h.checkOurs(rules[at], wanted); err != nil {
			return err
		}
	}

	switch {
	case at < 0 && len(wanted.Resources) == 0:
		return nil
	case len(wanted.Resources) == 0:
		h.Progress("high availability: rule " + wanted.Name + " is removed")

		return h.Proxmox.DeleteHARule(ctx, wanted.Name)
	case at >= 0:
		wanted.Digest = rules[at].Digest
		if same(rules[at], wanted) {
			return nil
		}
	}

	h.Progress(fmt.Sprintf("high availability: rule %s is set for %s", wanted.Name, strings.Join(wanted.Resources, ", ")))

	if err := h.Proxmox.SetHARule(ctx, wanted); err != nil {
		return fmt.Errorf("the rule %s of high availability cannot be set: %w", wanted.Name, err)
	}

	return nil
}

func (h *HARules) checkOurs(is, wanted proxmoxapi.HARule) error {
	foreign := slices.ContainsFunc(is.Resources, func(resource string) bool {
		return !slices.ContainsFunc(h.Plan.Nodes(), func(n plan.Node) bool { return sid(n) == resource })
	})

	if foreign || is.Comment != wanted.Comment || is.Kind != wanted.Kind {
		return fmt.Errorf("the rule %s of high availability is not of this cluster (comment %q, VMs %s): it is left alone; "+
			"rename or remove it", is.Name, is.Comment, strings.Join(is.Resources, ", "))
	}

	return nil
}

// same says that a rule is as wanted, whatever the order.
func same(is, wanted proxmoxapi.HARule) bool {
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }

	return slices.Equal(sorted(is.Resources), sorted(wanted.Resources)) &&
		slices.Equal(sorted(is.Nodes), sorted(wanted.Nodes)) && is.Strict == wanted.Strict
}

// join puts the VM of a node into the rule that its group has become. Nothing else of that rule changes: it is the
// operator's.
func (h *HARules) join(ctx context.Context, n plan.Node) error {
	rules, err := h.Proxmox.HARules(ctx)
	if err != nil {
		return err
	}

	at := slices.IndexFunc(rules, func(r proxmoxapi.HARule) bool { return r.Name == GroupRule(n.HAGroup) })
	if at < 0 {
		return fmt.Errorf("there is no rule %s of high availability: %s is kept running on any host", GroupRule(n.HAGroup),
			n.Name)
	}

	rule := rules[at]
	if slices.Contains(rule.Resources, sid(n)) {
		return nil
	}

	rule.Resources = append(slices.Clone(rule.Resources), sid(n))
	h.Progress(fmt.Sprintf("high availability: %s joins rule %s", n.Name, rule.Name))

	return h.Proxmox.SetHARule(ctx, rule)
}
