package components

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/vmrestart"
)

// vmHooks are the hooks of VMs and of what they boot, whatever is to run in them.
type vmHooks struct {
	// offered runs before a host downloads an image, and refuses what cannot be one. It runs in previews, too.
	offered *pulumi.ResourceHook
	// restored runs after an image was deleted, and has it downloaded again where nodes boot from it.
	restored *pulumi.ResourceHook
	// free runs before a VM is made: without a template, the provider would take over a VM that has the VMID.
	free *pulumi.ResourceHook
	// resumed runs before a VM is changed, and refuses to call one finished that is not.
	resumed *pulumi.ResourceHook
	// grown runs before a VM is changed, refuses what would take a disk away, and makes disks larger. It runs in previews,
	// too.
	grown *pulumi.ResourceHook
	// whole runs before a VM is made, and refuses an image that is not all there.
	whole *pulumi.ResourceHook
	// vacated runs before a VM is changed, and takes the pods off a node that is restarted by the
	// change, when it is its turn. It runs in previews, too. back runs after it and ends the turn, stuck where the change
	// has failed.
	vacated, back *pulumi.ResourceHook
	stuck         []*pulumi.ErrorHook

	// announced runs before a VM is made and created after it, checked before a VM is changed or deleted, companions
	// before what belongs to one is: each holds that it is the VM of the state.
	announced, created, checked, companions *pulumi.ResourceHook
	// deletions says that deletions have hooks: without the program, the engine refuses to delete what has.
	deletions bool
}

// register registers them.
func (g *vmHooks) register(ctx *pulumi.Context, name string, r *vmrestart.Hooks, register hookutil.Register) error {
	proxmox, previews := r.Proxmox, &pulumi.ResourceHookOptions{OnDryRun: true}
	images := proxmoxvm.ImageHooks{Proxmox: proxmox, Plan: r.Plan, Progress: r.Progress}
	updates := proxmoxvm.UpdateHooks{Program: ctx, Proxmox: proxmox, Identities: r.Identities, Progress: r.Progress}

	register(&g.offered, "image-offered", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		if ctx.DryRun() {
			return images.PreviewDownload(c, args)
		}

		return images.CheckDownload(c, args)
	}, previews)
	register(&g.whole, "image-whole", images.CheckImage)
	register(&g.restored, "image-restored", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return images.RestoreImage(hookutil.Deleting(c), args)
	})
	register(&g.free, "vmid-free", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return proxmoxvm.CheckVMIDFree(c, r.Plan, proxmox, ctx.Stack(), args)
	})
	register(&g.resumed, "vm-resumed", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return proxmoxvm.CheckComplete(c, r.Plan, proxmox, args)
	})
	register(&g.grown, "vm-grown", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		n, there := r.Nodes[args.Name]
		if !there {
			return fmt.Errorf("%s is the VM of no node of the plan", args.Name)
		}

		if err := proxmoxvm.CheckDisksKept(r.Plan, args); err != nil {
			return err
		}

		// A preview has said that Proxmox VE cannot be reached.
		if err := errors.Join(updates.GrowDisks(c, n), updates.RestorePool(c, n, args)); err != nil && !ctx.DryRun() {
			return err
		}

		return nil
	}, previews)
	register(&g.vacated, "vm-vacated", r.Before, previews)
	register(&g.announced, "vm-announced", r.Identities.Announce, previews)
	register(&g.created, "vm-created", r.Identities.CheckCreated)
	register(&g.checked, "vm-checked", r.Identities.Check, previews)
	register(&g.companions, "vm-companions", r.Identities.CheckCompanion, previews)
	register(&g.back, "vm-back", r.After)

	stuck, err := ctx.RegisterErrorHook(name+"-vm-stuck", func(args *pulumi.ErrorHookArgs) (bool, error) {
		return r.Failed(hookutil.Interruptible(ctx.Context()), args)
	})

	// Where the program does not run, the engine shows that it is missing in place of why a VM could not be deleted.
	if !r.Plan.Teardown {
		g.stuck = []*pulumi.ErrorHook{stuck}
	}

	return err
}

// of are the hooks of a VM, with those that run before it is made.
func (g *vmHooks) of(made ...*pulumi.ResourceHook) *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{
		BeforeCreate: append([]*pulumi.ResourceHook{g.announced}, made...), AfterCreate: []*pulumi.ResourceHook{g.created},
		// Who has been emptied for a change is changed: nothing may refuse it after that.
		BeforeUpdate: []*pulumi.ResourceHook{g.checked, g.resumed, g.grown, g.vacated},
		AfterUpdate:  []*pulumi.ResourceHook{g.back},
		OnError:      g.stuck, BeforeDelete: g.held(g.checked),
	}
}

// ofImages are the hooks of what a host downloads.
func (g *vmHooks) ofImages() *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{g.offered}, AfterDelete: g.held(g.restored)}
}

// ofCompanions are the hooks of what belongs to a VM.
func (g *vmHooks) ofCompanions() *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{BeforeUpdate: []*pulumi.ResourceHook{g.companions},
		BeforeDelete: g.held(g.companions)}
}

// held are the hooks of a deletion.
func (g *vmHooks) held(hooks ...*pulumi.ResourceHook) []*pulumi.ResourceHook {
	if !g.deletions {
		return nil
	}

	return hooks
}

// programOf is the run that the operations on a cluster belong to.
func programOf(ctx *pulumi.Context, name string) rollout.Program {
	return rollout.Program{
		DryRun: ctx.DryRun(), Progress: hookutil.Progress(ctx, name),
		// A message that is not shown is no reason to stop.
		Warn: func(message string) { _ = ctx.Log.Warn(message, nil) },
		Preview: func(row lifecycle.Row) error {
			message, err := row.Message()

			return errors.Join(err, ctx.Log.Info(row.String(), nil), ctx.Log.Debug(message, nil))
		},
	}
}

// nodesBy are the nodes of a plan by the name of one of their resources.
func nodesBy(p *plan.Plan, cluster, suffix string) map[string]plan.Node {
	nodes := map[string]plan.Node{}
	for _, n := range p.Nodes() {
		nodes[childName(cluster, n)+suffix] = n
	}

	return nodes
}

// outputAfter is an output that is known when all resources are done and a check has passed. Nothing else waits for it.
func outputAfter(
	ctx *pulumi.Context, all []pulumi.Resource, output pulumi.StringOutput, check func(context.Context) error,
) pulumi.StringOutput {
	waited := []any{output}
	for _, r := range all {
		waited = append(waited, r.(pulumi.CustomResource).ID())
	}

	return pulumi.ToSecret(pulumi.All(waited...).ApplyT(func(all []any) (string, error) {
		return all[0].(string), check(hookutil.Interruptible(ctx.Context()))
	})).(pulumi.StringOutput)
}
