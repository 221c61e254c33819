package vms

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/harules"
)

// CheckHA checks that what nodes want of high availability is there, and that its rules are as the program has made
// them.
func (c *Checker) CheckHA(ctx context.Context) error {
	if err := c.warnLocalDisks(ctx); err != nil {
		return err
	}

	if c.Major < harules.RulesMajor {
		c.checkNoHARules()

		return c.checkHAGroups(ctx)
	}

	if !slices.ContainsFunc(c.Plan.Nodes(), func(n plan.Node) bool { return n.HAGroup != "" || n.HA != nil }) {
		return nil
	}

	rules, err := c.Proxmox.HARules(ctx)
	if err != nil {
		return err
	}

	comments, err := c.Proxmox.HAComments(ctx)
	if err != nil {
		return err
	}

	for _, pool := range c.Plan.Pools {
		if len(pool.Nodes) > 0 && (pool.Nodes[0].HAGroup != "" || pool.Nodes[0].HA != nil) {
			c.checkHARules(pool, rules, comments)
		}
	}

	c.checkLastOfRules(rules)

	return nil
}

// checkHARules compares the rules of a pool with the plan. A hook that failed after the state was written, and whoever
// changes a rule by hand, leave nothing for the next update to do: a mark has it apply the rules again.
func (c *Checker) checkHARules(pool plan.PlannedPool, rules []proxmoxapi.HARule, comments map[string]string) {
	n := pool.Nodes[0]
	key := "pools." + pool.Name + ".ha"
	rule := func(name string) (proxmoxapi.HARule, bool) {
		at := slices.IndexFunc(rules, func(r proxmoxapi.HARule) bool { return r.Name == name })
		if at < 0 {
			return proxmoxapi.HARule{}, false
		}

		return rules[at], true
	}

	var differ []string

	if name := harules.RuleOf(n); n.HAGroup != "" {
		group, there := rule(name)
		if !there {
			c.Problems.Add(key+"Group", "is a group of Proxmox VE 8: this version has rules instead, and no rule "+
				"is called "+name, n.HAGroup,
				"set ha.hosts instead")

			return
		}

		if slices.ContainsFunc(pool.Nodes, func(n plan.Node) bool {
			_, managed := comments[harules.SID(n)]

			return managed && !slices.Contains(group.Resources, harules.SID(n))
		}) {
			differ = append(differ, name)
		}

		c.keepLast(pool, group, key+"Group")
	}

	for _, wanted := range harules.WantedRules(n, harules.MembersOf(n, c.Plan, comments)) {
		is, there := rule(wanted.Name)

		switch {
		case there && is.Comment != wanted.Comment && len(wanted.Resources) > 0:
			c.Warnings.Add(key, "needs the rule "+wanted.Name+", which does not belong to this cluster and is not "+
				"changed", is.Comment,
				"rename or remove it")
		case there && is.Comment == wanted.Comment && !harules.SameRule(c.withoutLeaving(is, wanted), wanted),
			!there && len(wanted.Resources) > 0:
			differ = append(differ, wanted.Name)
		}
	}

	c.markHA(pool, comments, differ)
}

// keepLast has nodes in lifecycle.replace refused whose VMs leave a rule together that was a group and has no others:
// Proxmox VE deletes a rule with its last VM, and the program cannot make it again.
func (c *Checker) keepLast(pool plan.PlannedPool, rule proxmoxapi.HARule, key string) {
	var replaced []plan.Node

	for _, n := range pool.Nodes {
		if c.Plan.Replaces(n.Name) && slices.Contains(rule.Resources, harules.SID(n)) {
			replaced = append(replaced, n)
		}
	}

	if len(replaced) == 0 || len(replaced) < len(rule.Resources) || len(replaced) > max(c.Plan.MaxUnavailable, 1) {
		return
	}

	for _, n := range replaced {
		problems := c.Replacements[n.Name]
		problems.Add(key, "the rule "+rule.Name+" has no other VM, and Proxmox VE deletes it with the last one", n.HAGroup,
			"set ha.hosts instead")
		c.Replacements[n.Name] = problems
	}
}

// withoutLeaving is a rule without the VMs that the plan no longer has: Proxmox VE takes them out of it. One that is to
// go is as it is, so that it goes before it is left with one of two VMs.
func (c *Checker) withoutLeaving(is, wanted proxmoxapi.HARule) proxmoxapi.HARule {
	if len(wanted.Resources) > 0 {
		is.Resources = slices.DeleteFunc(slices.Clone(is.Resources), func(r string) bool {
			return !slices.ContainsFunc(c.Plan.Nodes(), func(n plan.Node) bool { return harules.SID(n) == r })
		})
	}

	return is
}

// markHA keeps the marks of the HA resources of a pool, and changes one where rules differ and the update would apply
// them for no other reason.
func (c *Checker) markHA(pool plan.PlannedPool, comments map[string]string, differ []string) {
	changes, marked := false, -1

	for i, n := range pool.Nodes {
		comment, managed := comments[harules.SID(n)]
		mark := harules.Mark(comment)
		c.HAMarks[n.Name] = mark

		switch {
		case !managed || comment != harules.Comment(n, mark):
			changes = true
		case marked < 0:
			marked = i
		}
	}

	if len(differ) == 0 || changes {
		return
	}

	c.HAMarks[pool.Nodes[marked].Name]++
	c.Warnings.Add("pools."+pool.Name+".ha", "the rules of high availability differ from the configuration: this "+
		"update sets them again", strings.Join(differ, ", "), "")
}

// checkLastOfRules refuses to take the last VMs out of a rule that belongs to others: Proxmox VE has no rule without
// VMs, and has each VM in one rule at most that says where it runs.
func (c *Checker) checkLastOfRules(rules []proxmoxapi.HARule) {
	for _, rule := range rules {
		if !harules.Places(rule) || len(rule.Resources) == 0 {
			continue
		}

		var leaves []plan.Node

		for _, n := range c.Plan.Nodes() {
			placed := n.HAGroup != "" || n.HA != nil && len(n.HA.Hosts) > 0
			if placed && harules.RuleOf(n) != rule.Name && slices.Contains(rule.Resources, harules.SID(n)) {
				leaves = append(leaves, n)
			}
		}

		if len(leaves) < len(rule.Resources) || harules.Made(rule, leaves[0]) {
			continue
		}

		var names []string
		for _, n := range leaves {
			names = append(names, n.Name)
		}

		c.Problems.Add("pools."+leaves[0].Pool+haKey(leaves[0].HAGroup), fmt.Sprintf("the rule %s of high availability "+
			"already places these VMs and no others, and does not belong to this cluster: Proxmox VE allows a VM in only "+
			"one such rule", rule.Name),
			strings.Join(names, ", "), harules.RemoveRule(rule.Name))
	}
}

// checkNoHARules refuses what only rules can do.
func (c *Checker) checkNoHARules() {
	for _, n := range c.Plan.Nodes() {
		if n.HAGroup == "" && harules.RuleOf(n) != "" && c.Major != 0 {
			c.Problems.Add("pools."+n.Pool+".ha", "needs Proxmox VE 9 with hosts or apart: version 8 has groups, not rules",
				n.Name, "make a group (Datacenter, HA, Groups), and name it in haGroup")
		}
	}
}

// checkHAGroups checks that high-availability groups are there: Proxmox VE takes any name, and does nothing then.
func (c *Checker) checkHAGroups(ctx context.Context) error {
	var groups []string

	for _, n := range c.Plan.Nodes() {
		if n.HAGroup == "" {
			continue
		}

		if groups == nil {
			found, err := c.Proxmox.HAGroups(ctx)

			switch {
			case checks.EndChecks(err):
				return err
			case err != nil:
				c.Warnings.Add("pools."+n.Pool+".haGroup", fmt.Sprintf("could not determine whether this Proxmox VE has "+
					"the group: %v", err), n.HAGroup, "")

				return nil
			}

			groups = append([]string{}, found...)
		}

		if !slices.Contains(groups, n.HAGroup) {
			c.Problems.Add("pools."+n.Pool+".haGroup", "is not a high-availability group of this Proxmox VE", n.HAGroup,
				"make it (Datacenter, HA, Groups), or name one that is")
		}
	}

	return nil
}

// warnLocalDisks warns of high availability for VMs whose disks a host does not share: after its loss, no other host
// has what they start from. A replicated disk is a copy of before, which Proxmox VE does start.
func (c *Checker) warnLocalDisks(ctx context.Context) error {
	if c.Plan.Teardown {
		return nil
	}

	var shared map[string]bool

	for _, pool := range c.Plan.Pools {
		warned := map[string]bool{}

		for _, n := range pool.Nodes {
			// Once is enough, for replicated disks are none that a host shares.
			if n.HAGroup == "" && n.HA == nil || !c.Absent[n.VMID] {
				continue
			}

			if shared == nil {
				var err error

				switch shared, err = c.Proxmox.SharedStores(ctx); {
				case checks.EndChecks(err):
					return err
				case err != nil:
					c.Warnings.Add("pools."+pool.Name+haKey(n.HAGroup), fmt.Sprintf("could not determine whether the "+
						"datastores of its disks are shared: %v", err), "", "")

					return nil
				case len(shared) == 0:
					return nil // The credentials see none.
				}
			}

			for _, d := range n.Disks {
				// What is not listed, the credentials do not see.
				if is, known := shared[d.Datastore]; is || !known || warned[d.Datastore] {
					continue
				}

				warned[d.Datastore] = true

				c.Warnings.Add("pools."+pool.Name+haKey(n.HAGroup), "has no effect when a host is lost: datastore "+
					d.Datastore+" is not shared, and the VMs cannot start on another host without their disks", d.Datastore,
					"place the disks on shared storage (disk.datastore), or replicate them ('pvesr', on ZFS): the VMs then "+
						"start from the last copy")
			}
		}
	}

	return nil
}

// haKey is the key of a pool that high availability comes from.
func haKey(group string) string { return map[bool]string{false: ".ha", true: ".haGroup"}[group != ""] }
