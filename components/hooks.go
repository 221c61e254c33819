package components

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/harules"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/proxmoxvm/vmimage"
	"talos-proxmox/components/proxmoxvm/vmupdate"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/vmrestart"
	"talos-proxmox/components/tokens"
)

// vmHooks are the hooks of VMs and of what they boot, whatever is to run in them.
type vmHooks struct {
	// checkDownload runs before a host downloads an image, and refuses what is none. It runs in previews, too.
	checkDownload *pulumi.ResourceHook
	// checkDownloaded runs after a host has downloaded an image, and refuses what is none.
	checkDownloaded *pulumi.ResourceHook
	// checkUnused runs before an image is deleted, and keeps one that a VM of others has in a drive. It runs in previews,
	// too.
	checkUnused *pulumi.ResourceHook
	// checkUserDataUnused runs before user data are deleted, and keeps a file that a VM of others reads. It runs in
	// previews, too.
	checkUserDataUnused *pulumi.ResourceHook
	// checkMappingUnused runs before the resource mapping of a GPU is changed or deleted, and keeps one that a VM of
	// others has. It runs in previews, too.
	checkMappingUnused *pulumi.ResourceHook
	// checkDeleted runs after an image was deleted, and deletes a file again that is still there. checkUserDataDeleted and
	// checkMappingDeleted do so for user data and for the resource mapping of a GPU.
	checkDeleted, checkUserDataDeleted, checkMappingDeleted *pulumi.ResourceHook
	// restoreImage runs after an image was deleted, and has it downloaded again where nodes boot from it.
	restoreImage *pulumi.ResourceHook
	// checkUserDataFree runs before user data are written, and keeps a file that another stack has written meanwhile.
	checkUserDataFree *pulumi.ResourceHook
	// checkVMIDFree runs before a VM is made: without a template, the provider would take over a VM that has the VMID.
	checkVMIDFree *pulumi.ResourceHook
	// checkImage runs before a VM is made, and refuses an incomplete image.
	checkImage *pulumi.ResourceHook
	// checkComplete runs before a VM is changed, and refuses to record an incomplete one as complete.
	checkComplete *pulumi.ResourceHook
	// applyOnline runs before a VM is changed, refuses what would take a disk away, and makes disks larger. It runs in
	// previews, too.
	applyOnline *pulumi.ResourceHook
	// drain runs before a VM is changed, and drains a node that the change restarts, when the limiter admits it. It runs
	// in previews, too. rejoin runs after it and releases the node, failed where the change has failed.
	drain, rejoin *pulumi.ResourceHook
	failed        []*pulumi.ErrorHook

	// announced runs before a VM is made and created after it, checked before a VM is changed or deleted, companions
	// before what belongs to one is: each checks that it is the VM of the state.
	announced, created, checked, companions *pulumi.ResourceHook
	// applyRules runs after a VM was put under high availability, and sets the rules of its pool.
	applyRules *pulumi.ResourceHook
	// deletions says that deletions have hooks: without the program, the engine refuses to delete what has. A run that
	// destroys the cluster keeps them, so that the state of its resources need not be written before they are deleted.
	deletions bool
	// report is what was there when the run began; nil where it is not known.
	report *preflight.Report
	// alone says that the plan has one node, and others of its cluster have plans of their own.
	alone bool
}

// hookArgs are what the hooks of a cluster need, whatever its nodes run.
type hookArgs struct {
	plan      *plan.Plan
	report    *preflight.Report
	proxmox   Proxmox
	addresses *proxmoxvm.AddressBook
	// destroying says that the run destroys the cluster.
	destroying bool
}

// checkDestroy refuses a run that would destroy a part of the cluster only.
func (a hookArgs) checkDestroy() error {
	if !a.destroying || !a.plan.Teardown {
		return nil
	}

	return a.report.CheckUnprotected(a.plan)
}

// register registers them.
func (h *vmHooks) register(ctx *pulumi.Context, name string, r *vmrestart.Hooks, register hookutil.Register) error {
	h.deletions = !r.Plan.Teardown || r.Destroying

	images := vmimage.Hooks{
		Proxmox: r.Proxmox, Identities: r.Identities, Plan: r.Plan, Progress: r.Progress, DryRun: r.DryRun,
		Destroying: r.Destroying, UserDataMissing: h.report.UserDataMissing,
	}
	mappings := proxmoxvm.MappingHooks{
		Proxmox: r.Proxmox, Identities: r.Identities, Progress: r.Progress, DryRun: r.DryRun,
	}
	updates := vmupdate.Hooks{
		Program: ctx, Plan: r.Plan, Proxmox: r.Proxmox, Identities: r.Identities, Progress: r.Progress, Nodes: r.Nodes,
		Weights: &sync.Map{}, CheckPermissions: r.CheckPermissions,
	}
	clones := &proxmoxvm.Clones{
		Limit: r.Plan.ParallelClones, Timeout: r.Plan.TaskTimeout, GracePeriod: proxmoxvm.LongestClone(r.Plan),
		Proxmox: r.Proxmox, Progress: r.Progress,
	}
	// It is the last hook of a clone: what it waits for is making the clone.
	checkVMIDFree := func(c context.Context, args *pulumi.ResourceHookArgs) error {
		if err := vmidentity.CheckVMIDFree(c, r.Plan, r.Proxmox, ctx.Stack(), args); err != nil {
			return err
		}

		return clones.Begin(c, args)
	}
	checkCreated := func(c context.Context, args *pulumi.ResourceHookArgs) error {
		clones.End(args.Name)

		return r.Identities.CheckCreated(c, args)
	}
	checkComplete := func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return proxmoxvm.CheckComplete(c, r.Plan, r.Proxmox, args)
	}
	updated := func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return errors.Join(r.After(c, args), updates.KeepCPUUnits(c, args))
	}
	available := nodesBy(r.Plan, name, tokens.HASuffix)
	checkCompanion := func(c context.Context, args *pulumi.ResourceHookArgs) error {
		err := r.Identities.CheckCompanion(c, args)
		if n, there := available[args.Name]; err == nil && there && h.report.Exists(n) {
			err = h.report.CheckPermissions(n, []string{permissions.HighAvailability})
		}

		// Rules of a node alone have what comments the program wants.
		if err != nil || args.Type != tokens.FirewallRules || r.Destroying || h.alone {
			return err
		}

		return proxmoxvm.CheckRules(hookutil.Deleting(c), r.Plan, r.Proxmox, r.DryRun, args)
	}
	previews := &pulumi.ResourceHookOptions{OnDryRun: true}

	register(&h.checkDownload, "image-offered", images.CheckDownload, previews)
	register(&h.checkDownloaded, "image-downloaded", images.CheckDownloaded)
	register(&h.checkImage, "image-whole", images.CheckImage)
	register(&h.checkUnused, "image-unused", images.CheckUnused, previews)
	register(&h.checkUserDataUnused, "user-data-unused", images.CheckUserDataUnused, previews)
	register(&h.checkDeleted, "image-deleted", images.CheckDeleted)
	register(&h.checkUserDataDeleted, "user-data-deleted", images.CheckUserDataDeleted)
	register(&h.checkMappingUnused, "mapping-unused", mappings.CheckUnused, previews)
	register(&h.checkMappingDeleted, "mapping-deleted", mappings.CheckDeleted)
	register(&h.restoreImage, "image-restored", images.RestoreImage)
	register(&h.checkUserDataFree, "deletions-ended", images.CheckUserDataFree)
	register(&h.checkVMIDFree, "vmid-free", checkVMIDFree)
	register(&h.checkComplete, "vm-resumed", checkComplete)
	register(&h.applyOnline, "vm-grown", updates.ApplyOnline, previews)
	register(&h.drain, "vm-vacated", r.Before, previews)
	register(&h.rejoin, "vm-back", updated)
	register(&h.announced, "vm-announced", r.Identities.Announce, previews)
	register(&h.created, "vm-created", checkCreated)
	register(&h.checked, "vm-checked", r.Identities.Check, previews)
	rules := &harules.Rules{Plan: r.Plan, Proxmox: r.Proxmox, Progress: r.Progress, Alone: h.alone}
	register(&h.applyRules, "ha-rules", rules.Apply)
	register(&h.companions, "vm-companions", checkCompanion, previews)

	failed, err := ctx.RegisterErrorHook(name+"-vm-stuck", func(args *pulumi.ErrorHookArgs) (bool, error) {
		c := hookutil.Interruptible(ctx.Context())
		if args.FailedOperation == "create" {
			return clones.Failed(c, args), nil
		}

		return r.Failed(c, args)
	})

	// Where the program does not run, the engine shows that it is missing instead of why a VM could not be deleted.
	if h.deletions {
		h.failed = []*pulumi.ErrorHook{failed}
	}

	return err
}

// of are the hooks of a VM, with those that run before it is made.
func (h *vmHooks) of(made ...*pulumi.ResourceHook) *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{
		BeforeCreate: append([]*pulumi.ResourceHook{h.announced}, made...), AfterCreate: []*pulumi.ResourceHook{h.created},
		// The drain is last: a node that was drained for a change is changed.
		BeforeUpdate: []*pulumi.ResourceHook{h.checked, h.checkComplete, h.applyOnline, h.drain},
		AfterUpdate:  []*pulumi.ResourceHook{h.rejoin},
		OnError:      h.failed, BeforeDelete: h.held(h.checked),
	}
}

// ofImages are the hooks of what a host downloads. The engine runs those of a deletion for files that stay, too.
func (h *vmHooks) ofImages(keep bool) *pulumi.ResourceHookBinding {
	hooks := &pulumi.ResourceHookBinding{
		BeforeCreate: []*pulumi.ResourceHook{h.checkDownload}, AfterCreate: []*pulumi.ResourceHook{h.checkDownloaded},
		AfterDelete: h.held(h.restoreImage),
	}

	if !keep {
		hooks.BeforeDelete, hooks.AfterDelete = h.held(h.checkUnused), h.held(h.checkDeleted, h.restoreImage)
	}

	return hooks
}

// ofMappings are the hooks of the resource mapping of a GPU.
func (h *vmHooks) ofMappings() *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{
		BeforeUpdate: []*pulumi.ResourceHook{h.checkMappingUnused}, BeforeDelete: h.held(h.checkMappingUnused),
		AfterDelete: h.held(h.checkMappingDeleted),
	}
}

// ofFiles are the hooks of what is written to a host.
func (h *vmHooks) ofFiles() *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{
		BeforeCreate: []*pulumi.ResourceHook{h.checkUserDataFree}, BeforeDelete: h.held(h.checkUserDataUnused),
		AfterDelete: h.held(h.checkUserDataDeleted),
	}
}

// ofCompanions are the hooks of what belongs to a VM.
func (h *vmHooks) ofCompanions() proxmoxvm.CompanionHooks {
	return proxmoxvm.CompanionHooks{
		All: &pulumi.ResourceHookBinding{
			BeforeCreate: []*pulumi.ResourceHook{h.companions}, BeforeUpdate: []*pulumi.ResourceHook{h.companions},
			BeforeDelete: h.held(h.companions),
		},
		ApplyRules: h.applyRules, HARules: h.report.HARules(), Mark: h.report.HAMark,
	}
}

// held are the hooks of a deletion.
func (h *vmHooks) held(hooks ...*pulumi.ResourceHook) []*pulumi.ResourceHook {
	if !h.deletions {
		return nil
	}

	return hooks
}

// scopeOf is what the operations on the nodes of a cluster know.
func scopeOf(ctx *pulumi.Context, name string, a hookArgs) rollout.Scope {
	program := rollout.Program{
		DryRun: ctx.DryRun(), Progress: hookutil.Progress(ctx, name),
		// A message that is not shown is no reason to stop.
		Warn: func(message string) { _ = ctx.Log.Warn(message, nil) },
		Preview: func(row impact.NodeImpact) error {
			message, err := row.Message()

			return errors.Join(err, ctx.Log.Info(row.String(), nil), ctx.Log.Debug(message, nil))
		},
	}

	return rollout.Scope{
		Program: program, Plan: a.plan, Inventory: a.report, Addresses: a.addresses,
		Identities: vmidentity.NewIdentities(ctx, a.plan, a.proxmox, a.report.VM),
		Limiter:    rollout.NewLimiter(max(a.plan.MaxUnavailable, 1)),
		Destroying: a.destroying,
	}
}

// readState has the state read, which says which VMs are ours before they are deleted. A teardown without a destroy
// deletes none.
func readState(s rollout.Scope, report *preflight.Report, name string, cluster pulumi.Resource) error {
	if !s.DryRun && (!s.Plan.Teardown || s.Destroying) {
		s.Identities.ReadStateAfter(cluster)
	}

	// The engine reads no state that is empty.
	if !slices.ContainsFunc(s.Plan.Nodes(), report.Exists) {
		return nil
	}

	if err := s.Identities.CheckReleased(); err != nil {
		return err
	}

	if err := checkReplacements(s, report, name); err != nil {
		return err
	}

	return s.Identities.WarnUnrecorded()
}

// checkReplacements checks that the nodes that are replaced now can have another VM, before one of them leaves.
func checkReplacements(s rollout.Scope, report *preflight.Report, cluster string) error {
	return report.CheckReplacements(slices.DeleteFunc(s.Plan.Nodes(), func(n plan.Node) bool {
		if !s.Plan.Replaces(n.Name) {
			return true
		}

		replaced, err := s.Identities.Replaced(plan.ResourceName(cluster, n) + tokens.VMSuffix)

		return replaced || err != nil // Without an answer the node is refused where it is registered.
	}))
}

// externalRollout restarts the VMs of nodes that the program does not bootstrap: only the VM is waited for, and its
// failure reports itself nowhere.
func externalRollout(s rollout.Scope) *rollout.Rollout {
	r := rollout.New(s.Plan, s.Limiter, s.Progress)
	r.TurnTimeout = s.Plan.ReadyTimeout

	return r
}

// nodesBy are the nodes of a plan by the name of one of their resources.
func nodesBy(p *plan.Plan, cluster, suffix string) map[string]plan.Node {
	nodes := map[string]plan.Node{}
	for _, n := range p.Nodes() {
		nodes[plan.ResourceName(cluster, n)+suffix] = n
	}

	return nodes
}

// Proxmox is what hooks ask of Proxmox VE, in addition to what the provider does; *proxmoxapi.Client implements it.
type Proxmox = vmrestart.Proxmox
