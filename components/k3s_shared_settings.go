package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
)

// checkSharedSettings refuses a run that would create a server, or recreate one, which the servers that run would not
// let join. It runs before anything of a node is registered, in previews, too.
func checkSharedSettings(ctx *pulumi.Context, h k3sHooks, report *preflight.Report, cluster string) error {
	p := h.scope.Plan
	if report == nil || p.Teardown {
		return nil
	}

	var created []plan.Node

	for _, n := range p.ControlPlanes() {
		state, err := vmState(h.scope, report, cluster, n)
		if err != nil {
			return err
		}

		if !report.Exists(n) || report.Incomplete(n) || p.Replaces(n.Name) && !state.Replaced {
			created = append(created, n)
		}
	}

	problems, warnings := h.operations.Cluster.CheckSharedSettings(hookutil.Interruptible(ctx.Context()), created)

	for _, w := range warnings {
		if err := ctx.Log.Warn(w.String(), nil); err != nil {
			return err
		}
	}

	return problems.Err()
}
