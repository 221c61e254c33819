package rollout

import (
	"context"
	"fmt"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/upgradepath"
	"talos-proxmox/components/wait"
)

// ControlPlaneVersions are the versions of Kubernetes that the state has of control planes, by node, as they become
// known in a run. Of one that --target or --exclude leaves out, it is the version before the run: the engine does not
// tell the program of these flags.
type ControlPlaneVersions map[string]*wait.Future[string]

// NewControlPlaneVersions returns those of a plan, of which none is known yet.
func NewControlPlaneVersions(p *plan.Plan) ControlPlaneVersions {
	versions := ControlPlaneVersions{}
	for _, n := range p.ControlPlanes() {
		versions[n.Name] = wait.NewFuture[string]()
	}

	return versions
}

// CheckNotNewer refuses a worker that would run a newer Kubernetes than a control plane. Resources depend on each other
// so that control planes come first, and a run with --target or --exclude passes over that. The key is that of the
// version.
func (v ControlPlaneVersions) CheckNotNewer(ctx context.Context, s Scope, n plan.Node, key, wanted string) error {
	if n.Role == spec.RoleControlPlane {
		return nil
	}

	timeout := s.Plan.NodeTimeout
	if s.DryRun {
		timeout = wait.RequestTimeout
	}

	absent := s.Inventory.AbsentVMIDs()

	for _, controlPlane := range s.Plan.ControlPlanes() {
		if absent[controlPlane.VMID] {
			continue // it is new: no API server runs there yet
		}

		version, known := v[controlPlane.Name].Get(ctx, timeout)

		switch {
		case known && !upgradepath.Older(version, wanted):
		case known:
			return spec.Problem{
				Path: key,
				Rule: fmt.Sprintf("%s is not changed: control plane %s stays at %s, and workers never run a newer version",
					n.Name, controlPlane.Name, version),
				Value:  wanted,
				Remedy: "run 'pulumi up' without --target and --exclude, or let the flag include the control planes",
			}
		case !s.DryRun:
			return fmt.Errorf("%s is not changed: could not determine the version of control plane %s within %s; "+
				"run 'pulumi up' without --target and --exclude", n.Name, controlPlane.Name, timeout)
		}
	}

	return nil
}
