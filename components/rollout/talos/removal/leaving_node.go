package removal

import (
	"context"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// leavingNode is a node whose configuration is about to be deleted, and its VM after it.
type leavingNode struct {
	talosapi.Target

	// vmResource is the name of the resource of its VM.
	vmResource  string
	role        spec.Role
	credentials talosapi.Credentials
	// forced says that it is named in lifecycle.forceRemove: what it does not do is done without it.
	forced bool
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
}

// readLeavingNode reads the node that leaves from the configuration that was applied: nothing else knows a node that is
// not in the plan.
func (r *Removals) readLeavingNode(ctx context.Context, args *pulumi.ResourceHookArgs) (leavingNode, error) {
	l := leavingNode{
		Target:      talosapi.Target{Address: hookutil.String(args.OldInputs, "node")},
		vmResource:  strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix) + tokens.VMSuffix,
		credentials: r.credentialsFor(ctx, cluster.CredentialsOf(args.OldInputs)),
	}

	applied, err := machineconfig.Applied(hookutil.String(args.OldInputs, "machineConfigurationInput"),
		hookutil.Strings(args.OldInputs, "configPatches"))
	if err != nil {
		return l, fmt.Errorf("%s: the configuration of the node cannot be read: %w", args.Name, err)
	}

	l.Name, l.role = machineconfig.Identity(applied)

	if n, there := r.Nodes[args.Name]; there {
		l.planned, l.Name = &n, n.Name
	}

	if l.Name == "" {
		l.Name = strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix)
	}

	l.forced = r.Plan.DeclaredDead(l.Name)

	return l, nil
}

// credentialsFor are those that the cluster has now. Those that a node was configured with may be long expired. They
// are good enough where the others are not known, as in a preview that renews them, or belong to another cluster.
func (r *Removals) credentialsFor(ctx context.Context, configured talosapi.Credentials) talosapi.Credentials {
	bound := r.Plan.NodeTimeout
	if r.DryRun {
		bound = wait.RequestTimeout
	}

	if now, known := r.Credentials.Get(ctx, bound); known && now.CA == configured.CA {
		return now
	}

	return configured
}
