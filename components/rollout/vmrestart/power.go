package vmrestart

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/wait"
)

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
