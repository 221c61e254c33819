package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// checkVersion holds Proxmox VE to the supported range. A later version is only a warning, as the hosts of running
// clusters are upgraded, and so is an older one that gets no new VM.
func (c *checks) checkVersion(ctx context.Context) error {
	found, err := c.proxmox.Version(ctx)
	if err != nil {
		return err
	}

	c.report.major = found.Major
	problem := spec.Problem{Path: "proxmox.endpoint", Value: found.Text}

	switch {
	case found.Major < plan.OldestProxmox:
		problem.Rule = fmt.Sprintf("must be Proxmox VE %d or later: older ones are not supported", plan.OldestProxmox)
		problem.Remedy = "upgrade it"
	case found.Major > plan.NewestProxmox:
		problem.Rule = fmt.Sprintf("is a Proxmox VE later than %d, which this release does not know", plan.NewestProxmox)
		problem.Remedy = "try changes on a copy first, or use a later release of this program"
	default:
		return nil
	}

	if found.Major < plan.OldestProxmox && len(c.absent) > 0 {
		c.problems = append(c.problems, problem)
	} else {
		c.warnings = append(c.warnings, problem)
	}

	return nil
}

// firstWithoutPath is the Proxmox VE from which on a user who logs in without a terminal does not find the programs of
// administrators, which the provider calls by their names (bpg/terraform-provider-proxmox#2480).
const firstWithoutPath = 9

// checkSSHUser refuses users whose SSH login the provider cannot use for what new nodes need.
func (c *checks) checkSSHUser(context.Context) error {
	if c.plan.SSH == nil || c.plan.SSH.Username == "root" || c.report.major < firstWithoutPath || len(c.absent) == 0 {
		return nil
	}

	c.problems.Add("proxmox.ssh.username",
		fmt.Sprintf("must be root on Proxmox VE %d: the provider runs 'sudo pvesm' and 'sudo qm', which other users do not "+
			"find there", c.report.major), c.plan.SSH.Username,
		"write root, and put the key into /root/.ssh/authorized_keys of each host")

	return nil
}

// checkFirewall warns where the firewall of a VM would let everything in.
func (c *checks) checkFirewall(ctx context.Context) error {
	if !c.plan.Firewall {
		return nil
	}

	on, err := c.proxmox.FirewallOn(ctx)
	if err != nil && !errors.Is(err, proxmoxapi.ErrRefused) {
		c.warnings = append(c.warnings, spec.Problem{Path: "firewall.enabled", Rule: fmt.Sprintf("whether the firewall of "+
			"the datacenter is on is unknown: %v", err)})

		return nil
	}

	if err == nil && !on {
		c.warnings = append(c.warnings, spec.Problem{
			Path: "firewall.enabled", Rule: "has no effect on Proxmox VE yet: the firewall of its datacenter is off",
			Value:  "true",
			Remedy: "see that you keep access to the hosts, then switch it on: Datacenter, Firewall, Options",
		})
	}

	return err
}

// checkHA checks that what nodes want of high availability is there.
func (c *checks) checkHA(ctx context.Context) error {
	if !c.report.HARules() {
		c.checkNoHARules()

		return c.checkHAGroups(ctx)
	}

	var rules []proxmoxapi.HARule

	for _, n := range c.plan.Nodes() {
		rule := proxmoxvm.RuleOf(n)
		if rule == "" {
			continue
		}

		if rules == nil {
			found, err := c.proxmox.HARules(ctx)
			if err != nil {
				return err
			}

			rules = append([]proxmoxapi.HARule{}, found...)
		}

		at := slices.IndexFunc(rules, func(r proxmoxapi.HARule) bool { return r.Name == rule })
		member := at >= 0 && slices.Contains(rules[at].Resources, fmt.Sprintf("vm:%d", n.VMID))

		switch {
		case at < 0 && n.HAGroup != "":
			c.problems.Add("pools."+n.Pool+".haGroup", "is a group of Proxmox VE 8: this one has rules, and none called "+rule,
				n.HAGroup, "state ha.hosts in its place")
		case member || c.absent[n.VMID]:
		default:
			c.warnings = append(c.warnings, spec.Problem{
				Path: "pools." + n.Pool, Rule: fmt.Sprintf("VM %d is not in rule %s of high availability", n.VMID, rule),
				Value:  n.Name,
				Remedy: fmt.Sprintf("add vm:%d to it (Datacenter, HA, Affinity Rules), if the update does not", n.VMID),
			})
		}
	}

	return nil
}

// checkNoHARules refuses what only rules can do.
func (c *checks) checkNoHARules() {
	for _, n := range c.plan.Nodes() {
		if n.HAGroup == "" && proxmoxvm.RuleOf(n) != "" && c.report.major != 0 {
			c.problems.Add("pools."+n.Pool+".ha", "needs Proxmox VE 9 with hosts or apart: version 8 has groups, not rules",
				n.Name, "make a group (Datacenter, HA, Groups), and name it in haGroup")
		}
	}
}

// checkHAGroups checks that high-availability groups are there: Proxmox VE takes any name, and does nothing then.
func (c *checks) checkHAGroups(ctx context.Context) error {
	var groups []string

	for _, n := range c.plan.Nodes() {
		if n.HAGroup == "" {
			continue
		}

		if groups == nil {
			found, err := c.proxmox.HAGroups(ctx)
			if err != nil {
				return err
			}

			groups = append([]string{}, found...)
		}

		if !slices.Contains(groups, n.HAGroup) {
			c.problems.Add("pools."+n.Pool+".haGroup", "is not a high-availability group of this Proxmox VE", n.HAGroup,
				"make it (Datacenter, HA, Groups), or name one that is")
		}
	}

	return nil
}

// checkSharedStorage asks whether one host can download for all.
func (c *checks) checkSharedStorage(ctx context.Context) error {
	for _, pool := range c.plan.Pools {
		if pool.Image.URL == "" && pool.Image.FactoryURL == "" {
			continue
		}

		shared, err := c.proxmox.SharedStores(ctx)
		c.report.sharedImages = shared[c.plan.ImageStore]

		return err
	}

	return nil
}
