package hosts

import (
	"context"
	"errors"
	"fmt"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// CheckVersion holds Proxmox VE to the supported range. A later version is only a warning, as the hosts of running
// clusters are upgraded, and so is an older one that gets no new VM.
func (c Checker) CheckVersion(ctx context.Context) error {
	found, err := c.Proxmox.Version(ctx)
	if err != nil {
		return err
	}

	c.Major = found.Major
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

	if found.Major < plan.OldestProxmox && len(c.Absent) > 0 {
		c.Problems = append(c.Problems, problem)
	} else {
		c.Warnings = append(c.Warnings, problem)
	}

	return nil
}

// firstWithoutPath is the Proxmox VE from which on a user who logs in without a terminal does not find the programs of
// administrators, which the provider calls by their names (bpg/terraform-provider-proxmox#2480).
const firstWithoutPath = 9

// CheckSSHUser refuses users whose SSH login the provider cannot use for what new nodes need.
func (c Checker) CheckSSHUser(context.Context) error {
	if c.Plan.SSH == nil || c.Plan.SSH.Username == "root" || c.Major < firstWithoutPath || len(c.Absent) == 0 {
		return nil
	}

	c.Problems.Add("proxmox.ssh.username",
		fmt.Sprintf("must be root on Proxmox VE %d: the provider runs 'sudo pvesm' and 'sudo qm', which other users do not "+
			"find there", c.Major), c.Plan.SSH.Username,
		"write root, and put the key into /root/.ssh/authorized_keys of each host")

	return nil
}

// CheckFirewall warns where the firewall of a VM would let everything in.
func (c Checker) CheckFirewall(ctx context.Context) error {
	if !c.Plan.Firewall {
		return nil
	}

	on, err := c.Proxmox.FirewallOn(ctx)
	if err != nil && !errors.Is(err, proxmoxapi.ErrRefused) {
		c.Warnings = append(c.Warnings, spec.Problem{Path: "firewall.enabled", Rule: fmt.Sprintf("could not "+
			"determine whether the firewall of the datacenter is on: %v", err)})

		return nil
	}

	if err == nil && !on {
		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "firewall.enabled", Rule: "has no effect on Proxmox VE yet: the firewall of its datacenter is off",
			Value:  "true",
			Remedy: "make sure that you keep access to the hosts, then switch it on: Datacenter, Firewall, Options",
		})
	}

	return err
}

// CheckSharedStorage asks whether one host can download for all.
func (c Checker) CheckSharedStorage(ctx context.Context) error {
	for _, pool := range c.Plan.Pools {
		if pool.Image.URL == "" && pool.Image.FactoryURL == "" {
			continue
		}

		shared, err := c.Proxmox.SharedStores(ctx)
		c.SharedImages = shared[c.Plan.ImageStore]

		return err
	}

	return nil
}
