package components

import (
	"fmt"
	"net"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// machineInputs are what the component of a machine shows of it, whatever runs in it.
func machineInputs(n plan.Node) pulumi.Map {
	return pulumi.Map{
		"name": pulumi.String(n.Name), "pool": pulumi.String(n.Pool), "role": pulumi.String(n.Role),
		"vmid": pulumi.Int(n.VMID), "cores": pulumi.Int(n.Cores), "memoryMiB": pulumi.Int(n.MemoryMiB),
		"diskGiB": pulumi.Int(n.Disks[0].SizeGiB),
	}
}

// byRole are the pools of control planes, and the others.
func byRole(p *plan.Plan) (controls, others []plan.PlannedPool) {
	first := slices.IndexFunc(p.Pools, func(pool plan.PlannedPool) bool { return pool.Role != spec.RoleControlPlane })
	if first < 0 {
		return p.Pools, nil
	}

	return p.Pools[:first], p.Pools[first:]
}

// endpointOf a cluster is planned, or the address of its first control plane, whatever that is.
func endpointOf(p *plan.Plan, first pulumi.StringPtrOutput) pulumi.StringOutput {
	if p.Endpoint != "" {
		return pulumi.String(p.Endpoint).ToStringOutput()
	}

	return apiAt(first)
}

// apiAt is the Kubernetes API of the node at an address.
func apiAt(address pulumi.StringPtrOutput) pulumi.StringOutput {
	return address.Elem().ApplyT(func(address string) string {
		return "https://" + net.JoinHostPort(address, "6443")
	}).(pulumi.StringOutput)
}

// templateInput is what to clone for a node.
func templateInput(report *preflight.Report, n plan.Node) pulumi.IntInput {
	switch id := report.Template(n); {
	case report == nil:
		// Only a preview gets here: what to clone will be known when Proxmox VE answers.
		return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) int { return 0 }).(pulumi.IntOutput)
	case id == 0:
		// The value is ignored, for the VM exists; it must only be one that a VMID can have.
		return pulumi.Int(n.VMID)
	default:
		return pulumi.Int(id)
	}
}

// noReport is the error of a constructor that was not given any in an update.
const noReport = ": Preflight is nil, and an update needs the report of preflight.Run for the plan"

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
