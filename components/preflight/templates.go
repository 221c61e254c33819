package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// checkTemplates looks up the template of each node and checks what a clone of it needs.
func (c *checker) checkTemplates(ctx context.Context) error {
	configs, ruled := map[int]proxmoxapi.VMConfig{}, map[string]bool{}

	for _, n := range c.Plan.Nodes() {
		// Of a host that does not answer no template is known, and it gets no new node.
		if n.Template == "" || !c.CanAsk(n.Host) {
			continue
		}

		template, problem := findTemplate(c.VMs, c.Plan.PoolOf(n).Image.Path, n)
		if problem != nil {
			// A template that is gone does no harm to its clones.
			if c.Absent[n.VMID] {
				c.Problems = append(c.Problems, *problem)
			}

			continue
		}

		c.Templates[n.Name] = template.ID

		if !c.Absent[n.VMID] {
			continue
		}

		if _, asked := configs[template.ID]; !asked {
			var err error
			if configs[template.ID], err = c.Proxmox.Config(ctx, template); err != nil {
				return err
			}
		}

		switch path := c.Plan.PoolOf(n).Image.Path; {
		case c.Plan.Distribution == spec.DistributionK3s:
			problem = checkCloudTemplate(template, configs[template.ID], path)
		case c.Plan.Platform == spec.PlatformNoCloud: // Talos on metal does not read the drive
			problem = checkTalosTemplate(template, configs[template.ID], path)
		}

		if problem != nil {
			c.Problems = append(c.Problems, *problem)
		}

		c.Problems = append(c.Problems, checkClone(n, template, configs[template.ID])...)

		// One problem for each template of a path.
		pool := c.Plan.PoolOf(n)
		if key := fmt.Sprintf("%s %d", pool.Image.Path, template.ID); !ruled[key] && len(pool.FirewallRules()) > 0 {
			ruled[key] = true

			if err := c.checkTemplateRules(ctx, pool, template); err != nil {
				return err
			}
		}
	}

	return nil
}

// checkTemplateRules checks that the template of nodes with firewalls has no firewall rules. A clone has those of its
// template (qemu-server: clone_vmfw_conf), and the provider takes all rules of a VM for its own.
func (c *checker) checkTemplateRules(ctx context.Context, pool plan.PlannedPool, template proxmoxapi.VM) error {
	rules, err := c.Proxmox.FirewallRules(ctx, template)
	if err != nil || len(rules) == 0 {
		return err
	}

	c.Problems.Add(pool.Image.Path, fmt.Sprintf("must be a template without firewall rules, and this one has %d, "+
		"the first one: %s; a clone would have them, too", len(rules), proxmoxvm.DescribeRule(rules[0])),
		fmt.Sprintf("%s, VMID %d on host %s", template.Name, template.ID, template.Host),
		"delete them from the template, and open ports of nodes with firewall.open; or name another template")

	return nil
}

// findTemplate looks for the template on the node's own host, by VMID or by name, whose case matters. Its three
// failures are told apart because they have three remedies.
func findTemplate(vms []proxmoxapi.VM, key string, n plan.Node) (proxmoxapi.VM, *spec.Problem) {
	id, _ := strconv.Atoi(n.Template) // 0 is no VMID
	fail := func(rule, remedy string) (proxmoxapi.VM, *spec.Problem) {
		return proxmoxapi.VM{}, &spec.Problem{Path: key, Rule: rule, Value: n.Template, Remedy: remedy}
	}

	var here, alike []proxmoxapi.VM

	for _, v := range vms {
		switch {
		case v.Container:
		case v.Host == n.Host && (v.ID == id || v.Name == n.Template):
			here = append(here, v)
		case v.ID == id, strings.EqualFold(v.Name, n.Template):
			alike = append(alike, v)
		}
	}

	switch {
	case len(here) > 1:
		return fail(fmt.Sprintf("matches %d machines on host %s", len(here), n.Host), "give the VMID instead")
	case len(here) == 1 && !here[0].Template:
		return fail(fmt.Sprintf("is a VM on host %s (VMID %d), not a template: it was never finalised", n.Host, here[0].ID),
			fmt.Sprintf("run 'qm template %d' on that host", here[0].ID))
	case len(here) == 1:
		return here[0], nil
	case len(alike) > 0:
		return fail(fmt.Sprintf("is not on host %s; there is %q (VMID %d) on host %s", n.Host, alike[0].Name, alike[0].ID,
			alike[0].Host),
			"correct the name, whose case matters, or make the template on the node's host")
	default:
		return fail("is not on host "+n.Host+", and no host has a similar one", "prepare the template, or correct "+
			"the name")
	}
}

// checkTalosTemplate checks that a template of Talos has no machine configuration and no identity: its clones would
// begin with those, and not wait for their own.
func checkTalosTemplate(template proxmoxapi.VM, config proxmoxapi.VMConfig, path string) *spec.Problem {
	var rule, setting string

	switch {
	case config.UserData != "":
		rule, setting = "takes cloud-init data from files ("+config.UserData+")", "cicustom"
	case config.CloudInit != "":
		rule, setting = "has a cloud-init drive ("+config.CloudInit+")", config.CloudInit
	default:
		return nil
	}

	return &spec.Problem{
		Path: path, Rule: "must be a template of Talos without configuration, and this one " + rule,
		Value:  fmt.Sprintf("%s, VMID %d on host %s", template.Name, template.ID, template.Host),
		Remedy: fmt.Sprintf("run 'qm set %d --delete %s' on that host, or name another", template.ID, setting),
	}
}

// checkCloudTemplate checks that the template of a K3s node was made for cloud-init. The provider recreates the drive,
// not the system that reads it.
func checkCloudTemplate(template proxmoxapi.VM, config proxmoxapi.VMConfig, path string) *spec.Problem {
	if config.CloudInit != "" {
		return nil
	}

	return &spec.Problem{
		Path: path, Rule: "must be a template for cloud-init, and this one has no cloud-init drive",
		Value: fmt.Sprintf("%s, VMID %d on host %s", template.Name, template.ID, template.Host),
		Remedy: fmt.Sprintf("name another, or, where Ubuntu's cloud image is in it, run 'qm set %d --ide2 "+
			"<datastore>:cloudinit' on that host", template.ID),
	}
}

// checkClone checks what a clone takes over from its template and cannot change: the disk is where it is said to be,
// and no larger than asked for; the machine is of the kind that is wanted.
func checkClone(n plan.Node, template proxmoxapi.VM, config proxmoxapi.VMConfig) spec.Problems {
	var problems spec.Problems

	path := "pools." + n.Pool + "."
	named := fmt.Sprintf("template %s (VMID %d)", template.Name, template.ID)

	size, ok := config.Disks[n.Disks[0].Interface]

	switch {
	case !ok:
		problems.Add(path+"disk.interface", "must be where "+named+" has its disk", n.Disks[0].Interface,
			"it has "+orNone(slices.Sorted(maps.Keys(config.Disks))))
	case size > n.Disks[0].SizeGiB:
		problems.Add(path+"diskGiB", fmt.Sprintf("must be at least %d, the size of the disk of template %s: a disk cannot "+
			"shrink", size, template.Name),
			strconv.Itoa(n.Disks[0].SizeGiB), "raise it")
	}

	for _, kind := range []struct{ key, option, want, have string }{
		{"machine", "machine", n.Machine, config.Machine},
		{"firmware", "bios", n.Firmware, config.Firmware},
		{"scsiController", "scsihw", n.SCSIController, config.SCSIController},
	} {
		if kind.want != "" && kind.have != kind.want {
			problems.Add(path+kind.key, "is set by the template, and "+named+" has "+kind.have, kind.want,
				fmt.Sprintf("run 'qm set %d --%s %s' on host %s", template.ID, kind.option, proxmoxvm.MachineType(kind.want),
					template.Host))
		}
	}

	return problems
}

func orNone(have []string) string {
	if len(have) == 0 {
		return "no disk"
	}

	return strings.Join(have, ", ")
}
