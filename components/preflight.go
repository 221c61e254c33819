package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// Inventory is what a cluster asks of Proxmox VE before anything is registered; *proxmoxapi.Client answers it.
type Inventory interface {
	VMs(ctx context.Context) ([]proxmoxapi.VM, error)
	Disks(ctx context.Context, vm proxmoxapi.VM) (map[string]int, error)
}

// Templates are the VMIDs of the templates to clone, by node name. A node is left out when its VM exists and the template
// is gone; nil means that Proxmox VE did not answer.
type Templates map[string]int

// of is what to clone for a node.
func (t Templates) of(n plan.Node) pulumi.IntInput {
	switch id, ok := t[n.Name]; {
	case ok:
		return pulumi.Int(id)
	case t == nil:
		// Only a preview gets here: what to clone will be known when Proxmox VE answers.
		return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) int { return 0 }).(pulumi.IntOutput)
	default:
		// The value is ignored, for the VM exists; it must only be one that a VMID can have.
		return pulumi.Int(n.VMID)
	}
}

// Preflight asks Talos and Proxmox VE what they think of a plan, before anything is registered. It logs their warnings;
// the error holds everything that is wrong (plan.Problems). A preview goes on without Proxmox VE, and says so.
func Preflight(ctx *pulumi.Context, p *plan.Plan, inventory Inventory) (Templates, error) {
	warnings, refused := machineconfig.Check(p)

	// What Proxmox VE says of a plan that cannot be carried out helps nobody.
	if missing := unbuilt(p); len(missing) > 0 {
		return nil, errors.Join(missing, refused)
	}

	for _, w := range append(p.Warnings, warnings...) {
		if err := ctx.Log.Warn(w.String(), nil); err != nil {
			return nil, err
		}
	}

	templates, vms, missing := findTemplates(ctx.Context(), inventory, p)
	for _, w := range elsewhere(vms, p) {
		if err := ctx.Log.Warn(w.String(), nil); err != nil {
			return nil, err
		}
	}

	if errors.Is(missing, proxmoxapi.ErrUnreachable) && ctx.DryRun() {
		templates, missing = nil, ctx.Log.Warn(missing.Error()+"; templates and VMIDs were not checked", nil)
	}

	return templates, errors.Join(refused, explain(missing))
}

// explain names what to change when Proxmox VE does not answer, or not us.
func explain(err error) error {
	switch {
	case errors.Is(err, proxmoxapi.ErrUnreachable):
		return plan.Problems{{
			Path: "proxmox.endpoint", Rule: err.Error(), Remedy: "correct it, or see that the host is up and its port open from here",
		}}
	case errors.Is(err, proxmoxapi.ErrUntrusted):
		return plan.Problems{{
			Path: "proxmox.endpoint", Rule: err.Error(),
			Remedy: "let this machine trust the certificate's authority, or set proxmox.insecure",
		}}
	case errors.Is(err, proxmoxapi.ErrRefused):
		return plan.Problems{{
			Path: "proxmox.tokenId", Rule: err.Error(),
			Remedy: "check it with proxmoxTokenSecret (or proxmox.username with proxmoxPassword), and that its role may do this",
		}}
	default:
		return err
	}
}

// findTemplates looks up the template of each node and checks what a clone of it needs. It returns the machines that it
// looked through too. The error holds everything that is wrong (plan.Problems), or says that Proxmox VE did not answer.
func findTemplates(ctx context.Context, inventory Inventory, p *plan.Plan) (Templates, []proxmoxapi.VM, error) {
	vms, err := inventory.VMs(ctx)
	if err != nil {
		return nil, nil, err
	}

	var problems plan.Problems

	found := Templates{}
	disks := map[int]map[string]int{}

	for _, n := range p.Nodes() {
		present := slices.IndexFunc(vms, func(v proxmoxapi.VM) bool { return v.ID == n.VMID })
		if present >= 0 {
			if problem := taken(vms[present], n, p.Cluster); problem != nil {
				problems = append(problems, *problem)

				continue
			}
		}

		template, problem := findTemplate(vms, templateKey(p, n), n)
		if problem != nil {
			// A template that is gone harms nobody who has been cloned from it.
			if present < 0 {
				problems = append(problems, *problem)
			}

			continue
		}

		found[n.Name] = template.ID

		if _, asked := disks[template.ID]; !asked {
			if disks[template.ID], err = inventory.Disks(ctx, template); err != nil {
				return nil, vms, err
			}
		}

		if problem := checkDisk(n, template, disks[template.ID]); problem != nil && present < 0 {
			problems = append(problems, *problem)
		}
	}

	problems = append(problems, leaving(vms, p)...)

	// Nodes of one pool share a template: what is wrong with it is said once.
	return found, vms, problems.Unique().Err()
}

// taken says who has the VMID of a node, when it is not the node.
func taken(v proxmoxapi.VM, n plan.Node, cluster string) *plan.Problem {
	switch {
	case v.Name == n.Name && !v.Container:
		return nil
	case slices.Contains(v.Tags, cluster):
		return &plan.Problem{
			Path: "pools." + n.Pool + ".names", Rule: fmt.Sprintf("VMID %d is %q, a node of this cluster: a node keeps its name", v.ID, v.Name),
			Value: n.Name, Remedy: "leave the names, and the cluster's and the pool's, as they were",
		}
	default:
		return &plan.Problem{
			Path: "pools." + n.Pool + ".vmids", Rule: fmt.Sprintf("%d is taken by %q on host %s", v.ID, v.Name, v.Host),
			Value: n.Name, Remedy: "choose another range, or remove that machine",
		}
	}
}

// leaving are the control planes of the cluster that the plan no longer has. Deleting their VMs would leave etcd counting
// members that are gone, until it has no quorum.
func leaving(vms []proxmoxapi.VM, p *plan.Plan) plan.Problems {
	var problems plan.Problems

	planned := map[int]bool{}
	for _, n := range p.Nodes() {
		planned[n.VMID] = true
	}

	for _, v := range vms {
		ours := slices.Contains(v.Tags, p.Cluster) && slices.Contains(v.Tags, string(plan.ControlPlane)) && slices.Contains(v.Tags, "talos")
		if ours && !planned[v.ID] {
			problems.Add("pools", "removing a control plane is not built yet: etcd would go on counting it",
				fmt.Sprintf("%s, VMID %d on host %s, is not in the configuration any more", v.Name, v.ID, v.Host),
				"put it back; or take it out of etcd ('talosctl reset --graceful'), delete its VM, and run 'pulumi refresh'")
		}
	}

	return problems
}

// templateKey is the configuration key that states the template of a node.
func templateKey(p *plan.Plan, n plan.Node) string {
	return p.Pools[slices.IndexFunc(p.Pools, func(pool plan.PlannedPool) bool { return pool.Name == n.Pool })].Image.Path
}

// findTemplate looks for the template on the node's own host, by VMID or by name, whose case matters. Its three failures
// are told apart because they have three remedies.
func findTemplate(vms []proxmoxapi.VM, key string, n plan.Node) (proxmoxapi.VM, *plan.Problem) {
	id, _ := strconv.Atoi(n.Template) //nolint:errcheck // 0 is nobody's VMID
	fail := func(rule, remedy string) (proxmoxapi.VM, *plan.Problem) {
		return proxmoxapi.VM{}, &plan.Problem{Path: key, Rule: rule, Value: n.Template, Remedy: remedy}
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
		return fail(fmt.Sprintf("names %d machines on host %s", len(here), n.Host), "give the VMID instead")
	case len(here) == 1 && !here[0].Template:
		return fail(fmt.Sprintf("is a VM on host %s (VMID %d), not a template: it was never finalised", n.Host, here[0].ID),
			fmt.Sprintf("run 'qm template %d' on that host", here[0].ID))
	case len(here) == 1:
		return here[0], nil
	case len(alike) > 0:
		return fail(fmt.Sprintf("is not on host %s; there is %q (VMID %d) on host %s", n.Host, alike[0].Name, alike[0].ID, alike[0].Host),
			"correct the name, whose case matters, or make the template on the node's host")
	default:
		return fail("is not on host "+n.Host+", nor anything like it on another", "prepare the template, or correct the name")
	}
}

// checkDisk holds what a clone needs of its template: the disk where it is said to be, and no larger than asked for.
func checkDisk(n plan.Node, template proxmoxapi.VM, disks map[string]int) *plan.Problem {
	size, ok := disks[n.Disks[0].Interface]

	switch {
	case !ok:
		var have []string
		for iface := range disks {
			have = append(have, iface)
		}

		slices.Sort(have)

		return &plan.Problem{
			Path: "pools." + n.Pool + ".disk.interface", Value: n.Disks[0].Interface,
			Rule:   fmt.Sprintf("must be where template %s (VMID %d) has its disk", template.Name, template.ID),
			Remedy: "it has " + orNone(have),
		}
	case size > n.Disks[0].SizeGiB:
		return &plan.Problem{
			Path: "pools." + n.Pool + ".diskGiB", Value: strconv.Itoa(n.Disks[0].SizeGiB),
			Rule:   fmt.Sprintf("must be at least %d, the size of the disk of template %s: a disk cannot shrink", size, template.Name),
			Remedy: "raise it",
		}
	}

	return nil
}

func orNone(have []string) string {
	if len(have) == 0 {
		return "no disk"
	}

	return strings.Join(have, ", ")
}
