package vmupdate

import (
	"context"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// KeepCPUUnits gives a VM the weight that the plan states after an update, too, or that it had before: with other
// processors, the provider writes the weight that it knows from the state.
func (u Hooks) KeepCPUUnits(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n := u.Nodes[args.Name]
	if weight, noted := u.Weights.Load(n.VMID); noted {
		n.CPUUnits, _ = weight.(int)
	}

	return u.ApplyCPUUnits(ctx, n)
}

// noteCPUUnits notes the weight that a VM has before an update that changes its processors, where the plan states none.
func (u Hooks) noteCPUUnits(ctx context.Context, n plan.Node, args *pulumi.ResourceHookArgs) error {
	if n.CPUUnits != 0 || u.Program.DryRun() || args.OldInputs["cpu"].DeepEquals(args.NewInputs["cpu"]) {
		return nil
	}

	v, there, err := u.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	settings, err := u.Proxmox.Settings(ctx, v)
	if err == nil {
		u.Weights.Store(n.VMID, settings.CPUUnits())
	}

	return err
}

// ApplyCPUUnits gives a VM the weight that the plan states, while it runs: the provider would restart it.
func (u Hooks) ApplyCPUUnits(ctx context.Context, n plan.Node) error {
	if n.CPUUnits == 0 {
		return nil
	}

	v, there, err := u.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	settings, err := u.Proxmox.Settings(ctx, v)
	if err != nil || settings.CPUUnits() == n.CPUUnits {
		return err
	}

	message := fmt.Sprintf("%s: CPU weight changes from %d to %d; the VM runs on", n.Name, settings.CPUUnits(), n.CPUUnits)
	if u.Program.DryRun() {
		return u.Program.Log.Info(message, nil)
	}

	if err := u.Identities.CheckNow(ctx, n); err != nil {
		return fmt.Errorf("the CPU weight of VM %d on host %s is not changed: %w", v.ID, v.Host, err)
	}

	u.Progress(message)

	if err := u.Proxmox.SetCPUUnits(ctx, v, n.CPUUnits); err != nil {
		return fmt.Errorf("the CPU weight of VM %d on host %s cannot be set to %d: %w", v.ID, v.Host, n.CPUUnits, err)
	}

	return nil
}
