// Package vmrestart takes nodes down for changes of their VMs that restart them.
package vmrestart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// unmanaged is a node of a cluster that the program does not manage: nothing is asked of it.
type unmanaged struct{ rollout.Node }

func (unmanaged) Evaluate(context.Context) (rollout.Work, error) {
	return rollout.Work{NotInCluster: true}, nil
}

// CheckPermissions checks that the credentials may do all of an update of a VM, before any of it is done: what the
// provider changes, and what hooks do themselves, by properties of the VM. Whether a change of earlier is pending,
// which would restart the VM, Before finds.
func (r *Hooks) CheckPermissions(args *pulumi.ResourceHookArgs, online []string) error {
	n := r.Nodes[args.Name]
	changes := proxmoxvm.AppliedChanges(n, changesOf(args.OldInputs, args.NewInputs))

	return r.Permissions.CheckPermissions(n, properties(append(changes, online...), len(proxmoxvm.Restarts(changes)) > 0))
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
	why := reasonOf(n, now, changes, args)

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

	var cluster rollout.Node = unmanaged{}

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
