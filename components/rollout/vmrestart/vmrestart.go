// Package vmrestart takes nodes down for changes of their VMs that restart them.
package vmrestart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// Options are what the hooks of one cluster's VMs need to know.
type Options struct {
	rollout.Scope

	Proxmox Proxmox
	// Permissions of the credentials.
	Permissions Permissions
	Rollout     *rollout.Rollout
	// Nodes of the plan, by the name of their VM.
	Nodes map[string]plan.Node
	// System is what runs in the VMs; nil: the program does not manage it.
	System rollout.System
}

// Proxmox is what is asked of Proxmox VE; *proxmoxapi.Client implements it.
type Proxmox interface {
	proxmoxvm.Proxmox

	Process(ctx context.Context, vm proxmoxapi.VM) (int, error)
	Start(ctx context.Context, vm proxmoxapi.VM) error
	Restart(ctx context.Context, vm proxmoxapi.VM) error
}

// Permissions say whether the credentials may change properties of the VM of a node; *preflight.Report implements it.
type Permissions interface {
	CheckPermissions(n plan.Node, changes []string) error
}

// Hooks run before and after changes of VMs. The provider restarts a VM within its update, whatever runs in it: the
// node is drained before, when the limiter admits it, and released when it has rejoined. All of that is within the one
// step of the engine that changes the VM, so that a node that waits for the limiter waits for work that is under way.
type Hooks struct {
	Options

	// grace is how long Proxmox VE may take to start a VM that it restarts, offGrace one that is found off.
	grace, offGrace time.Duration

	mu sync.Mutex
	// underWay are the restarts that are under way, by the name of the VM.
	underWay map[string]restart
}

// New returns the hooks of one cluster's VMs.
func New(o Options) *Hooks {
	return &Hooks{Options: o, grace: startGrace, offGrace: offGrace, underWay: map[string]restart{}}
}

// unmanaged is a node of a cluster that the program does not manage: nothing is asked of it.
type unmanaged struct{ rollout.Cluster }

func (unmanaged) Evaluate(context.Context) (rollout.Work, error) {
	return rollout.Work{NotInCluster: true}, nil
}

// restart is a VM that is being changed.
type restart struct {
	*rollout.Disruption
	machineNow

	// drained is the process of the VM when the provider was asked to change it.
	drained int
}

// Before runs before a VM is changed. Its error leaves the VM as it is.
func (r *Hooks) Before(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, there := r.Nodes[args.Name]
	if !there {
		return fmt.Errorf("%s is the VM of no node of the plan", args.Name)
	}

	now, err := r.readMachine(ctx, n)
	if err != nil && (errors.Is(err, proxmoxapi.ErrHostUnreachable) || !r.DryRun) {
		return err
	}

	changes := proxmoxvm.AppliedChanges(n, changesOf(args.OldInputs, args.NewInputs))

	why := strings.Join(proxmoxvm.Restarts(changes), ", ")
	if why == "" {
		why = now.pending
	}

	if why == "" && proxmoxvm.DisksPending(n, now.settings, changes, proxmoxvm.Disks(args.OldOutputs),
		proxmoxvm.Disks(args.NewInputs)) {
		why = "disks"
	}

	if err := r.Permissions.CheckPermissions(n, properties(changes, why != "")); err != nil {
		return err
	}

	if why == "" {
		return r.switchOn(ctx, n, now, args)
	}

	if err := r.checkDrives(ctx, n, now, why); err != nil {
		return err
	}

	var blocked error
	if r.Plan.Apply == spec.ApplyStaged || r.Plan.Apply == spec.ApplyNoReboot {
		blocked = fmt.Errorf("lifecycle.apply: this change of the VM (%s) needs a restart, which %s forbids; set auto",
			why, r.Plan.Apply)
	}

	if r.DryRun {
		return r.preview(ctx, n, why, blocked)
	}

	if blocked != nil {
		return fmt.Errorf("%s: %w", n.Name, blocked)
	}

	// What is off is not restarted.
	if now.process == 0 {
		return nil
	}

	return r.begin(ctx, args.Name, n, now, why)
}

// machineNow is a VM as it runs.
type machineNow struct {
	vm proxmoxapi.VM
	// process runs it; 0: it is off, or there is none.
	process int
	// pending are settings that wait for its restart; empty: none. An update has failed before it came to that, and to the
	// provider the VM looks done, in the state as on Proxmox VE.
	pending string
	// settings are those it runs with.
	settings map[string]string
}

func (r *Hooks) readMachine(ctx context.Context, n plan.Node) (machineNow, error) {
	if r.DryRun {
		short, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
		defer cancel()

		ctx = short
	}

	v, there, err := r.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return machineNow{}, err
	}

	if err := vmidentity.CheckReachable(v, n.Name); err != nil {
		return machineNow{}, err
	}

	process, err := r.Proxmox.Process(ctx, v)
	if err != nil || process == 0 {
		return machineNow{vm: v}, err
	}

	settings, err := r.Proxmox.Settings(ctx, v)

	waiting := settings.PendingKeys()
	if len(waiting) > 0 {
		waiting[len(waiting)-1] += ", since an earlier update"
	}

	return machineNow{v, process, strings.Join(waiting, ", "), settings.Current}, err
}

// checkDrives refuses to restart a VM with a deleted ISO file in a drive: Proxmox VE would not start it again.
// What cannot be listed is for Proxmox VE to say.
func (r *Hooks) checkDrives(ctx context.Context, n plan.Node, now machineNow, why string) error {
	drives := proxmoxapi.CDROMs(now.settings)

	for _, drive := range slices.Sorted(maps.Keys(drives)) {
		volume := drives[drive]

		datastore, _, file := strings.Cut(volume, ":iso/")
		if !file {
			continue
		}

		files, err := r.Proxmox.Files(ctx, now.vm.Host, datastore)
		if _, there := files[volume]; err != nil || there {
			continue
		}

		return fmt.Errorf("the VM of %s is not restarted (%s): %s is in its drive %s and does not exist, so Proxmox VE "+
			"would not start the VM again. Put the file back; or, if the node has installed, run 'qm set %d --%s "+
			"none,media=cdrom' on host %s; then run 'pulumi up' again", n.Name, why, volume, drive, now.vm.ID, drive,
			now.vm.Host)
	}

	return nil
}

// switchOn starts a VM that the state says is on: the provider does not, and would wait for its guest agent.
func (r *Hooks) switchOn(ctx context.Context, n plan.Node, now machineNow, args *pulumi.ResourceHookArgs) error {
	on := func(values resource.PropertyMap) bool {
		started := hookutil.Unwrap(values["started"])

		return started.IsBool() && started.BoolValue()
	}

	if r.DryRun || now.vm.ID == 0 || now.process != 0 || !on(args.OldOutputs) || !on(args.NewInputs) {
		return nil
	}

	// Off for a moment, in the middle of a restart whose end was not waited for: a start now would be taken for a VM that
	// does not stop, and Proxmox VE would lock it for half a minute.
	if process, err := r.awaitStart(ctx, now.vm, r.offGrace); err != nil || process != 0 {
		return err
	}

	if err := r.Identities.CheckNow(ctx, n); err != nil {
		return fmt.Errorf("VM %d is off, and is not started: %w", now.vm.ID, err)
	}

	if err := r.Proxmox.Start(ctx, now.vm); err != nil {
		return fmt.Errorf("VM %d of %s is off, and does not start: %w", now.vm.ID, n.Name, err)
	}

	return nil
}

// awaitStart waits for Proxmox VE to start a VM by itself, and returns its process; 0: it is still off.
func (r *Hooks) awaitStart(ctx context.Context, v proxmoxapi.VM, longest time.Duration) (int, error) {
	// A wait that is in vain is no error: the answer below says so.
	_ = wait.Until(ctx, longest, r.Progress, func(ctx context.Context) error {
		process, err := r.Proxmox.Process(ctx, v)
		if err == nil && process == 0 {
			return wait.For("Proxmox VE to start VM %d", v.ID)
		}

		return err
	})

	return r.Proxmox.Process(ctx, v)
}

// changesOf are the paths of what of a VM changes.
func changesOf(before, after resource.PropertyMap) []string {
	return slices.Collect(maps.Keys(plugin.NewDetailedDiffFromObjectDiff(before.Diff(after,
		resource.IsInternalPropertyKey), true)))
}

// properties are those that paths are about.
func properties(changes []string, restart bool) []string {
	var found []string
	for _, path := range changes {
		found = append(found, proxmoxvm.Property(path))
	}

	if restart {
		found = append(found, "started")
	}

	slices.Sort(found)

	return slices.Compact(found)
}

// preview says in a preview what will become of the node. A refusal is an error there, too.
func (r *Hooks) preview(ctx context.Context, n plan.Node, why string, blocked error) error {
	row := impact.NodeImpact{
		Node: n.Name, Pool: n.Pool, Role: string(n.Role), Effect: impact.EffectReboot, Why: "VM: " + why, VM: true,
		Limits: impact.Limits{MaxUnavailable: r.Plan.MaxUnavailable, Canary: r.Plan.Canary},
	}

	blocked = row.Refuse(blocked)
	if blocked == nil && r.System != nil {
		row.Quorum = r.System.PreviewRestart(ctx, n)
	}

	return errors.Join(r.Program.Preview(row), blocked)
}

// begin drains a node for the restart of its VM when the limiter admits it, and restarts the VM where an earlier update
// has not: the provider does not.
func (r *Hooks) begin(ctx context.Context, name string, n plan.Node, now machineNow, why string) error {
	message := fmt.Sprintf("the VM of %s restarts (%s)", n.Name, why)

	var cluster rollout.Cluster = unmanaged{}

	if r.System != nil {
		cluster = r.System.Restart(n)
	} else {
		message += "; its pods are not drained with bootstrap: external"
	}

	d, err := r.Rollout.Prepare(ctx, n, cluster, "the VM of "+n.Name+" is not changed")
	if err != nil {
		return err
	}

	r.Progress(message)

	u := restart{Disruption: d, machineNow: now, drained: now.process}

	// To drain a node takes its time.
	if err := r.Identities.CheckNow(ctx, n); err != nil {
		err = fmt.Errorf("the VM of %s is not changed: %w", n.Name, err)

		return errors.Join(err, r.abandon(ctx, u, err))
	}

	if now.pending != "" {
		err := r.Proxmox.Restart(ctx, now.vm)
		if err == nil {
			err = r.holdRunning(ctx, n, true)
		}

		if err == nil {
			u.drained, err = r.Proxmox.Process(ctx, now.vm)
		}

		if err != nil {
			err = fmt.Errorf("the VM of %s is not restarted: %w", n.Name, err)

			return errors.Join(err, r.abandon(ctx, u, err))
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.underWay[name] = u

	return nil
}

// After runs after a VM has been changed, and releases the node when it has rejoined. Its error leaves the node
// cordoned; the next update uncordons it.
func (r *Hooks) After(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, known := r.Nodes[args.Name]
	if !known {
		return nil
	}

	u, there := r.done(args.Name)

	var err error
	if there {
		err = r.restartPending(ctx, n, u)
	}

	if err == nil {
		err = r.holdRunning(ctx, n, there)
	}

	if err == nil {
		err = proxmoxvm.CheckUpdated(ctx, r.Proxmox, n, args)
	}

	if err != nil {
		err = fmt.Errorf("%s does not run with the change of its VM: %w", n.Name, err)

		if there {
			u.Release(err)
		} else {
			r.Limiter.Fail(n.Name)
		}

		return err
	}

	if !there {
		return nil
	}

	if r.same(ctx, u) {
		r.Progress(fmt.Sprintf("the VM of %s already runs with its new settings", n.Name))

		err = u.Undo(ctx)
	} else if err = u.Finish(ctx); err != nil {
		err = fmt.Errorf("%s has not rejoined since its VM was restarted: %w", n.Name, err)
	}

	u.Release(err)

	return err
}

// restartPending restarts a VM that the provider has changed and not restarted, where a change waits for that: the
// provider does so for some properties, and for aio alone of the options of a disk.
func (r *Hooks) restartPending(ctx context.Context, n plan.Node, u restart) error {
	// One that is off is starting, with what waited.
	process, err := r.Proxmox.Process(ctx, u.vm)
	if err != nil || process != u.drained {
		return err
	}

	settings, err := r.Proxmox.Settings(ctx, u.vm)
	if err != nil || len(settings.Pending) == 0 {
		return err
	}

	if err := r.Identities.CheckNow(ctx, n); err != nil {
		return fmt.Errorf("the VM is not restarted: %w", err)
	}

	return r.Proxmox.Restart(ctx, u.vm)
}

// same says that a VM has not been restarted: an update that failed half-way may have done so, and the provider knows
// what of the change is done.
func (r *Hooks) same(ctx context.Context, u restart) bool {
	process, err := r.Proxmox.Process(ctx, u.vm)

	return err == nil && process != 0 && process == u.process
}

// Failed runs after a VM could not be changed.
func (r *Hooks) Failed(ctx context.Context, args *pulumi.ErrorHookArgs) (again bool, err error) {
	u, there := r.done(args.Name)
	if !there {
		return false, nil
	}

	return false, r.abandon(ctx, u, errors.New("its VM could not be changed"))
}

// abandon releases a node that failed. It may not have gone down at all: it is uncordoned.
func (r *Hooks) abandon(ctx context.Context, u restart, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Plan.SettleTimeout)
	defer cancel()

	err := u.Undo(ctx)
	u.Release(why)

	return err
}

// done takes out a restart that is under way.
func (r *Hooks) done(name string) (restart, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	u, there := r.underWay[name]
	delete(r.underWay, name)

	return u, there
}

const (
	// startGrace is how long Proxmox VE may take to start a VM that it has shut down for a restart.
	startGrace = 20 * time.Second
	// offGrace is the same where no restart is known of: the start follows within two seconds (qm cleanup).
	offGrace = 5 * time.Second
)

// holdRunning checks that a VM runs, with all that was asked for. Proxmox VE starts it after the task of its restart
// has ended, which the provider does not wait for, and reports nowhere why it does not.
func (r *Hooks) holdRunning(ctx context.Context, n plan.Node, restarted bool) error {
	v, there, err := r.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	longest := r.offGrace
	if restarted {
		longest = r.grace
	}

	process, err := r.awaitStart(ctx, v, longest)
	if err != nil {
		return err
	}

	if process == 0 {
		if err := r.Identities.CheckNow(ctx, n); err != nil {
			return fmt.Errorf("VM %d is off, and is not started: %w", v.ID, err)
		}

		if err := r.Proxmox.Start(ctx, v); err != nil {
			if again, asked := r.Proxmox.Process(ctx, v); asked != nil || again == 0 {
				return fmt.Errorf("VM %d does not start: %w", v.ID, err)
			}
		}
	}

	if !restarted {
		return nil
	}

	settings, err := r.Proxmox.Settings(ctx, v)
	if err == nil && len(settings.Pending) > 0 {
		err = fmt.Errorf("VM %d runs, and these of its settings still wait for a restart: %s", v.ID,
			strings.Join(settings.PendingKeys(), ", "))
	}

	return err
}
