package components

import (
	"fmt"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// vmState is what is known of the VM of a node that is there.
func vmState(s rollout.Scope, report *preflight.Report, cluster string, n plan.Node) (proxmoxvm.State, error) {
	state := report.VMState(n)
	if !s.Plan.Replaces(n.Name) || report.AbsentVMIDs()[n.VMID] {
		return state, nil
	}

	replaced, err := s.Identities.Replaced(plan.ResourceName(cluster, n) + tokens.VMSuffix)
	if err != nil {
		return state, spec.Problem{
			Path: "lifecycle.replace", Rule: fmt.Sprintf("could not determine whether the node was already "+
				"replaced: %v", err),
			Value: n.Name, Remedy: "run 'pulumi up' again, or take the node out of the list",
		}
	}

	state.Replaced = replaced

	// New nodes are refused by preflight.
	if !replaced && s.Plan.Apply == spec.ApplyStaged && !s.Plan.Teardown {
		return state, spec.StagedCannotConfigure(n.Name)
	}

	return state, nil
}
