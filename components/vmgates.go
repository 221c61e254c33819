package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
)

// vmGates are the hooks of VMs and of what they boot, whatever is to run in them.
type vmGates struct {
	// offered runs before a host downloads an image, and refuses what cannot be one. It runs in previews, too.
	offered *pulumi.ResourceHook
	// free runs before a VM is made: without a template, the provider would take over a VM that has the VMID.
	free *pulumi.ResourceHook
	// resumed runs before a VM is changed, and refuses to call one finished that is not.
	resumed *pulumi.ResourceHook
	// grown runs before a VM is changed, refuses what would take a disk away, and makes disks larger. It runs in previews, too.
	grown *pulumi.ResourceHook
	// whole runs before a VM is made, and refuses an image that is not all there.
	whole *pulumi.ResourceHook
	// vacated runs before a VM is changed, and takes the pods off a node that is restarted by the
	// change, when it is its turn. It runs in previews, too. back runs after it and ends the turn, stuck where the change has failed.
	vacated, back *pulumi.ResourceHook
	stuck         []*pulumi.ErrorHook

	// announced runs before a VM is made and created after it, checked before a VM is changed or deleted, companions before what belongs
	// to one is: each holds that it is the VM of the state.
	announced, created, checked, companions *pulumi.ResourceHook
	// deletions says that deletions have hooks: without the program, the engine refuses to delete what has.
	deletions bool
}

// register registers them.
func (g *vmGates) register(ctx *pulumi.Context, name string, r *restarts, register hookutil.Register) error {
	proxmox, previews := r.proxmox, &pulumi.ResourceHookOptions{OnDryRun: true}
	images := imageGates{proxmox: proxmox, plan: r.plan}

	register(&g.offered, "image-offered", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		if ctx.DryRun() {
			return images.foreseen(c, args)
		}

		return images.offered(c, args)
	}, previews)
	register(&g.whole, "image-whole", images.whole)
	register(&g.free, "vmid-free", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return free(c, r.plan, proxmox, ctx.Stack(), args)
	})
	register(&g.resumed, "vm-resumed", func(c context.Context, args *pulumi.ResourceHookArgs) error { return resumed(c, r.plan, proxmox, args) })
	register(&g.grown, "vm-grown", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		n, there := r.nodes[args.Name]
		if !there {
			return fmt.Errorf("%s is the VM of no node of the plan", args.Name)
		}

		if err := keepsDisks(r.plan, args); err != nil {
			return err
		}

		if err := r.grow(c, n); err != nil && !ctx.DryRun() { // A preview has said that Proxmox VE cannot be reached.
			return err
		}

		return nil
	}, previews)
	register(&g.vacated, "vm-vacated", r.before, previews)
	register(&g.announced, "vm-announced", r.identities.announced, previews)
	register(&g.created, "vm-created", r.identities.created)
	register(&g.checked, "vm-checked", r.identities.checked, previews)
	register(&g.companions, "vm-companions", r.identities.companions, previews)
	register(&g.back, "vm-back", r.after)

	stuck, err := ctx.RegisterErrorHook(name+"-vm-stuck", func(args *pulumi.ErrorHookArgs) (bool, error) {
		return r.failed(hookutil.Interruptible(ctx.Context()), args)
	})

	// Where the program does not run, the engine shows that it is missing in place of why a VM could not be deleted.
	if !r.plan.Teardown {
		g.stuck = []*pulumi.ErrorHook{stuck}
	}

	return err
}

// of are the hooks of a VM, with those that run before it is made.
func (g *vmGates) of(made ...*pulumi.ResourceHook) *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{
		BeforeCreate: append([]*pulumi.ResourceHook{g.announced}, made...), AfterCreate: []*pulumi.ResourceHook{g.created},
		// Who has been emptied for a change is changed: nothing may refuse it after that.
		BeforeUpdate: []*pulumi.ResourceHook{g.checked, g.resumed, g.grown, g.vacated}, AfterUpdate: []*pulumi.ResourceHook{g.back},
		OnError: g.stuck, BeforeDelete: g.held(g.checked),
	}
}

// ofCompanions are the hooks of what belongs to a VM.
func (g *vmGates) ofCompanions() *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{BeforeUpdate: []*pulumi.ResourceHook{g.companions}, BeforeDelete: g.held(g.companions)}
}

// held are the hooks of a deletion.
func (g *vmGates) held(hooks ...*pulumi.ResourceHook) []*pulumi.ResourceHook {
	if !g.deletions {
		return nil
	}

	return hooks
}

// free holds that nobody has the VMID of a VM that is to be made. A refresh would not see it: it looks only for what the
// state has.
func free(ctx context.Context, p *plan.Plan, proxmox Proxmox, stack string, args *pulumi.ResourceHookArgs) error {
	vmid := int(hookutil.Number(args.NewInputs, "vmId"))
	name := hookutil.String(args.NewInputs, "name")

	v, there, err := proxmox.Find(ctx, vmid)

	if err != nil || !there {
		return err
	}

	if v.Silent {
		return fmt.Errorf("VMID %d, meant for %q, is a VM's on host %s already, which does not answer: whose it is is unknown. Start the host, or choose another range",
			vmid, name, v.Host)
	}

	begun, err := untouched(ctx, p, proxmox, v)

	switch {
	case err != nil:
		return err
	case v.Name == name && begun:
		return fmt.Errorf("VMID %d is %q on host %s already, but not in this stack's state: a run was cut off while it made it, and nothing is on it. "+
			"Delete it ('qm destroy %d --purge' there), then run 'pulumi up' again", vmid, v.Name, v.Host, vmid)
	case v.Name == name && slices.Contains(v.Tags, string(plan.KindK3s)):
		return fmt.Errorf("VMID %d is %q on host %s already, but not in this stack's state: a run was cut off before it could note it. Delete that VM, "+
			"then run 'pulumi up' again", vmid, v.Name, v.Host)
	case v.Name == name && slices.Contains(v.Tags, string(plan.KindTalos)):
		return fmt.Errorf("VMID %d is %q on host %s already, but not in this stack's state: a run was cut off before it could note it. To take it in, "+
			"run 'go run ./stacks/ops -s %s adopt' and what that prints. To have it made anew, delete that VM, then run 'pulumi up' again",
			vmid, v.Name, v.Host, stack)
	default:
		return fmt.Errorf("VMID %d, meant for %q, is taken by %q on host %s: it was made while this run was under way. Remove it, or choose another range", vmid,
			name, v.Name, v.Host)
	}
}

// untouched tells whether nothing has ever run in a VM that is off: it is a copy without its settings, or has no disk yet, or the ISO file is
// in its drive that is taken out before a node is configured.
func untouched(ctx context.Context, p *plan.Plan, proxmox Proxmox, v proxmoxapi.VM) (bool, error) {
	pool, n, planned := proxmoxvm.NodeByVMID(p, v.ID)
	if !v.Stopped || !planned {
		return false, nil
	}

	if !slices.Contains(v.Tags, string(plan.KindTalos)) && !slices.Contains(v.Tags, string(plan.KindK3s)) {
		return true, nil
	}

	config, err := proxmox.Config(ctx, v)
	if err != nil {
		return false, err
	}

	_, disk := config.Disks[n.Disks[0].Interface]
	loaded := pool.Image.Detach && !slices.Contains([]string{"", "none"}, config.CDROMs[n.CDROM])

	return !disk || loaded, nil
}

// imageGates hold what is known of an image before and after it is downloaded.
type imageGates struct {
	proxmox Proxmox
	plan    *plan.Plan
}

// offered asks the host what the URL holds. A server that answers with a page instead of an image would be believed.
func (g imageGates) offered(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	host, url := hookutil.String(args.NewInputs, "nodeName"), hookutil.String(args.NewInputs, "url")

	size, err := g.proxmox.Offered(ctx, host, url)

	switch {
	case err != nil:
		return fmt.Errorf("host %s cannot get the image %s: %w%s", host, url, err, g.remedy(url))
	case size > 0 && size < proxmoxvm.SmallestImage:
		return fmt.Errorf("%s holds %d bytes: that is no image. Open it, and correct the URL, or what the factory is asked for", url, size)
	default:
		return nil
	}
}

// foreseen asks in a preview what is known there: an image of the factory may be of a schematic that it does not know yet, and without
// Proxmox VE nothing is known, which the preview has said.
func (g imageGates) foreseen(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	url := hookutil.String(args.NewInputs, "url")
	if url == "" || slices.ContainsFunc(g.plan.Pools, func(p plan.PlannedPool) bool {
		return p.Image.FactoryURL != "" && strings.HasPrefix(url, p.Image.FactoryURL+"/")
	}) {
		return nil
	}

	err := g.offered(ctx, args)
	if errors.Is(err, proxmoxapi.ErrUnreachable) || errors.Is(err, proxmoxapi.ErrOffline) {
		return nil
	}

	return err
}

// remedy names the key that states a URL; empty when none does.
func (g imageGates) remedy(url string) string {
	for _, p := range g.plan.Pools {
		if p.Image.URL == url {
			return "; correct " + p.Image.Path + ".url, or let the host reach it"
		}
	}

	return ""
}

// whole looks at the image that a VM is about to boot: where a download was cut off, nobody else would notice.
func (g imageGates) whole(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	host, volume := hookutil.String(args.NewInputs, "nodeName"), bootVolume(args.NewInputs)
	if volume == "" {
		return nil
	}

	datastore, _, _ := strings.Cut(volume, ":")

	files, err := g.proxmox.Files(ctx, host, datastore)
	if err != nil {
		return err
	}

	size, there := files[volume]

	switch {
	case !there:
		return fmt.Errorf("image %s is not on host %s: it was removed. Run 'pulumi up --refresh'", volume, host)
	case size < proxmoxvm.SmallestImage:
		return fmt.Errorf("image %s on host %s has %d bytes: that is no image. Delete it there ('pvesm free %s'), and run 'pulumi up --refresh'", volume, host,
			size, volume)
	default:
		return nil
	}
}

// bootVolume is the ISO file or the image of a VM; empty for a clone.
func bootVolume(inputs resource.PropertyMap) string {
	if cdrom := hookutil.Unwrap(inputs["cdrom"]); cdrom.IsObject() {
		if volume := hookutil.String(cdrom.ObjectValue(), "fileId"); strings.Contains(volume, ":") {
			return volume
		}
	}

	if all := disks(inputs); len(all) > 0 {
		return hookutil.String(all[0], "fileId")
	}

	return ""
}
