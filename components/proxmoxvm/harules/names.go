package harules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// RulesMajor is the first version of Proxmox VE with rules instead of groups.
const RulesMajor = 9

// GroupRule is the rule that Proxmox VE makes of a group when it is upgraded to version 9.
func GroupRule(group string) string { return "ha-group-" + group }

// HasRules says that rules of the program say where a node's VM runs.
func HasRules(n plan.Node) bool { return n.HA.Places() }

// RuleOf is the rule that places the VM of a node on Proxmox VE 9; empty: none does.
func RuleOf(n plan.Node) string {
	switch {
	case n.HAGroup != "":
		return GroupRule(n.HAGroup)
	case n.HA != nil && len(n.HA.Hosts) > 0:
		return placingRule(n)
	case n.HA != nil && n.HA.Apart:
		return placingRule(n) + apartSuffix
	default:
		return ""
	}
}

const apartSuffix = "-apart"

// placingRule is the rule with the hosts of a node's pool. Proxmox VE takes only names that begin with a letter
// (pve-configid), which that of a cluster may not; an underscore is in no name of a cluster.
func placingRule(n plan.Node) string {
	name := n.Cluster + "-" + n.Pool
	if name[0] >= '0' && name[0] <= '9' {
		return "ha_" + name
	}

	return name
}

// Comment is the comment of the HA resource of a node: whose it is, and what the rules are to be. Its change is what
// lets a hook change the rules. A mark above 0 changes it where all else is the same. A node without rules and mark has
// none.
func Comment(n plan.Node, mark int) string {
	if !HasRules(n) && mark == 0 {
		return ""
	}

	comment := ruleComment(n) + ":"

	if n.HA != nil && len(n.HA.Hosts) > 0 {
		comment += " hosts " + strings.Join(n.HA.Hosts, " ")
	}

	if n.HA != nil && n.HA.Strict {
		comment += " only"
	}

	if n.HA != nil && n.HA.Apart {
		comment += " apart"
	}

	if mark > 0 {
		comment += fmt.Sprintf(" (applied again: %d)", mark)
	}

	return comment
}

var haMark = regexp.MustCompile(` \(applied again: (\d+)\)$`)

// Mark is the mark in the comment of an HA resource; 0 where there is none.
func Mark(comment string) int {
	m := haMark.FindStringSubmatch(comment)
	if m == nil {
		return 0
	}

	mark, _ := strconv.Atoi(m[1])

	return mark
}

// ruleComment says whose a rule is. Names of clusters are unique on a Proxmox VE.
func ruleComment(n plan.Node) string { return clusterComment(n) + n.Pool }

func clusterComment(n plan.Node) string {
	return fmt.Sprintf("talos-proxmox cluster %s pool ", n.Cluster)
}

// SID is how high availability calls the VM of a node.
func SID(n plan.Node) string { return "vm:" + strconv.Itoa(n.VMID) }

// WantedRules are the rules of the pool of a node, of members of high availability. One that is not to be there has no
// VMs: one without hosts, one with less than two VMs to keep apart, and those of a pool whose VMs are in a group.
func WantedRules(n plan.Node, members []string) []proxmoxapi.HARule {
	name := placingRule(n)
	nodes := proxmoxapi.HARule{Name: name, Kind: proxmoxapi.HANodes, Comment: ruleComment(n)}
	apart := proxmoxapi.HARule{Name: name + apartSuffix, Kind: proxmoxapi.HAApart, Comment: ruleComment(n)}

	if n.HA != nil && len(n.HA.Hosts) > 0 {
		nodes.Resources, nodes.Nodes, nodes.Strict = members, n.HA.Hosts, n.HA.Strict
	}

	if n.HA != nil && n.HA.Apart && len(members) > 1 {
		apart.Resources = members
	}

	// VMs are not both kept apart and on hosts with priorities: what is to go, goes first.
	if len(apart.Resources) == 0 {
		return []proxmoxapi.HARule{apart, nodes}
	}

	return []proxmoxapi.HARule{nodes, apart}
}

// MembersOf are the VMs of the pool of a node that are under high availability already, by the program: it has written
// their comments. Without a plan, they are all that have such comments.
func MembersOf(n plan.Node, p *plan.Plan, comments map[string]string) []string {
	var found []string

	for id, comment := range comments {
		planned := p == nil || slices.ContainsFunc(p.Nodes(), func(other plan.Node) bool {
			return SID(other) == id && other.Pool == n.Pool
		})

		if planned && strings.HasPrefix(comment, ruleComment(n)+":") {
			found = append(found, id)
		}
	}

	slices.Sort(found)

	return found
}

// Made says that the program made a rule for the cluster of a node.
func Made(rule proxmoxapi.HARule, n plan.Node) bool {
	return strings.HasPrefix(rule.Comment, clusterComment(n))
}

// SameRule says that a rule is as wanted, whatever the order.
func SameRule(is, wanted proxmoxapi.HARule) bool {
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }

	return slices.Equal(sorted(is.Resources), sorted(wanted.Resources)) &&
		slices.Equal(sorted(is.Nodes), sorted(wanted.Nodes)) && is.Strict == wanted.Strict
}

// Places says that a rule says on which hosts VMs run. Each is in one of these at most.
func Places(rule proxmoxapi.HARule) bool { return rule.Kind == proxmoxapi.HANodes && !rule.Disabled }
