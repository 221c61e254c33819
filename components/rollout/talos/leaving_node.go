package talos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout/talos/bootstrap"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// Removals decides whether a node may lose its machine, and takes it out of the cluster before it does.
type Removals struct {
	*cluster.Cluster

	// bootstrap holds that etcd is not forgotten with its last control plane.
	bootstrap *bootstrap.Bootstrap
	// abandoned says that etcd was found to have lost its quorum, and control planes are going: what is asked of those
	// while their VMs are deleted proves nothing.
	abandoned atomic.Bool
}

// leavingNode is a node whose configuration is about to be deleted, and its VM after it.
type leavingNode struct {
	talosapi.Target

	// vm is the name of the resource of its VM.
	vm          string
	role        spec.Role
	credentials talosapi.Credentials
	// forced says that it is named in lifecycle.forceRemove: what it does not do is done without it.
	forced bool
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
}

// leavingNode reads the node that leaves from the configuration that was applied: nothing else
// knows a node that is not in the plan.
func (r *Removals) leavingNode(ctx context.Context, args *pulumi.ResourceHookArgs) (leavingNode, error) {
	l := leavingNode{
		Target:      talosapi.Target{Address: hookutil.String(args.OldInputs, "node")},
		vm:          strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix) + tokens.VMSuffix,
		credentials: r.credentials(ctx, cluster.CredentialsOf(args.OldInputs)),
	}

	applied, err := machineconfig.Applied(hookutil.String(args.OldInputs, "machineConfigurationInput"),
		hookutil.Strings(args.OldInputs, "configPatches"))
	if err != nil {
		return l, fmt.Errorf("%s: what the node was configured with cannot be read: %w", args.Name, err)
	}

	l.Name, l.role = machineconfig.Identity(applied)

	if n, there := r.Nodes[args.Name]; there {
		l.planned, l.Name = &n, n.Name
	}

	if l.Name == "" {
		l.Name = strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix)
	}

	l.forced = slices.Contains(r.Plan.ForceRemove, l.Name)

	return l, nil
}

// credentials are those that the cluster has now. Those that a node was configured with may be long expired. They are
// good enough where the others are not known, as in a preview that renews them, or belong to another cluster.
func (r *Removals) credentials(ctx context.Context, configured talosapi.Credentials) talosapi.Credentials {
	bound := r.Plan.NodeTimeout
	if r.DryRun {
		bound = wait.RequestTimeout
	}

	if now, known := r.Credentials.Get(ctx, bound); known && now.CA == configured.CA {
		return now
	}

	return configured
}

// readdressed says that a node whose VM stays has another address now: only what was applied at the old one goes. Of a
// VM that is about to be made again, this run does not know yet what will become of it.
func (r *Removals) readdressed(ctx context.Context, l leavingNode) bool {
	if now := r.Addresses.Get(l.Name); now == "" || now == l.Address {
		return false
	}

	_, registered := r.UUIDs[l.Name].Get(ctx, wait.RequestTimeout)

	return registered
}

// in is which of the members of etcd the node is; -1: none. Only one that has not started yet has no name: at the
// address may be another node by now.
func (l leavingNode) in(members []etcd.Member) int {
	return slices.IndexFunc(members, func(m etcd.Member) bool {
		return m.Name == l.Name || m.Name == "" && m.Address == l.Address
	})
}

// is says whether a member is a node of the plan: by name, or, before it has started, by address.
func (r *Removals) is(m etcd.Member, n plan.Node) bool {
	return m.Name == n.Name || m.Name == "" && m.Address == r.Addresses.Get(n.Name)
}

// nodeRemoval is what leaves etcd: the node, and all members that the plan does not have.
func (r *Removals) nodeRemoval(l leavingNode, members []etcd.Member) etcd.MemberRemoval {
	d := etcd.MemberRemoval{Members: members, Dead: r.Plan.ForceRemove}

	for _, m := range members {
		stays := slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool { return r.is(m, n) })
		if m.Name != "" && (!stays || m.Name == l.Name) {
			d.Leaving = append(d.Leaving, m.Name)
		}
	}

	return d
}
