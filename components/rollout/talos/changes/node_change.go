package changes

import (
	"context"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/rollout/talos/health"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// nodeChange is a node whose configuration is about to change.
type nodeChange struct {
	talosapi.Target

	node        plan.Node
	credentials talosapi.Credentials
	// wanted is the configuration that is to be applied; nil in a preview that does not know it yet.
	wanted talosconfig.Provider
}

// readChange reads what is to be applied.
func (r *Changes) readChange(ctx context.Context, args *pulumi.ResourceHookArgs) (nodeChange, error) {
	n, err := r.Node(args)
	if err != nil {
		return nodeChange{}, err
	}

	c := nodeChange{
		Target: talosapi.Target{Name: n.Name, Address: hookutil.String(args.NewInputs, "node")}, node: n,
		credentials: cluster.CredentialsOf(args.NewInputs),
	}

	// In a preview nothing is done to what answers.
	if !r.DryRun {
		if c.UUID, err = r.expectedUUID(ctx, n); err != nil {
			return c, err
		}
	}

	input := hookutil.String(args.NewInputs, "machineConfigurationInput")
	if input == "" && r.DryRun {
		return c, nil
	}

	if c.wanted, err = machineconfig.Applied(input, hookutil.Strings(args.NewInputs, "configPatches")); err != nil {
		return c, fmt.Errorf("%s: %w", n.Name, err)
	}

	return c, nil
}

// waitRunning waits for a node that is on its way up or down: a run that was cut off may have sent it there.
func (r *Changes) waitRunning(ctx context.Context, c nodeChange) (now talosapi.System, err error) {
	err = wait.Until(ctx, r.Plan.UpgradeTimeout, r.Progress, func(ctx context.Context) (err error) {
		now, err = talosapi.Ask(ctx, c.Target, c.credentials)

		switch {
		case err != nil:
			return wait.For("%s to answer (%v)", c.Name, err)
		case !now.Running:
			return wait.For("%s to be up (it is %s)", c.Name, now.Stage)
		default:
			return nil
		}
	})

	return now, err
}

// pendingSettings is what a node runs, and what of its configuration is still to be changed.
func (r *Changes) pendingSettings(ctx context.Context, c nodeChange) (talosapi.System, []impact.Setting, error) {
	now, err := r.waitRunning(ctx, c)
	if err != nil {
		return now, nil, err
	}

	settings, err := impact.Settings(now.Configuration, c.wanted)
	if err != nil {
		return now, nil, fmt.Errorf("%s: %w", c.Name, err)
	}

	return now, settings, nil
}

// checkVersion refuses a worker that is to run a newer Kubernetes than the control planes.
func (r *Changes) checkVersion(ctx context.Context, c nodeChange) error {
	return r.Versions.CheckNotNewer(ctx, r.Scope, c.node, "cluster.versions.kubernetes",
		talosimage.System(c.wanted).Kubernetes)
}

// peersOf are the control planes to ask about the node.
func (r *Changes) peersOf(c nodeChange) []talosapi.Target {
	return r.Peers(c.Target, c.node.Role)
}

// waitKubernetes waits for a control plane to speak with.
func (r *Changes) waitKubernetes(ctx context.Context, c nodeChange) (*kubeapi.Client, error) {
	return rollout.WaitKubernetes(ctx, r.Plan, r.Progress, func(ctx context.Context) (*kubeapi.Client, error) {
		return r.RetryingKubernetes(ctx, r.peersOf(c), c.credentials)
	})
}

// healthWatch tells whether the node serves.
func (r *Changes) healthWatch(c nodeChange) *health.Watch {
	return &health.Watch{Target: c.Target, Cluster: r.Cluster, Role: c.node.Role, Credentials: c.credentials}
}

// checkNotReset is why nothing is sent to a machine that answers in maintenance mode where a node with a configuration
// is expected; nil where none does.
func (r *Changes) checkNotReset(ctx context.Context, c nodeChange) error {
	machine, err := talosapi.ConnectMaintenance(ctx, c.Target)
	if err != nil {
		return nil //nolint:nilerr // none does
	}
	defer machine.Close()

	if !strings.EqualFold(machine.UUID, c.UUID) {
		return otherMachineError(c, machine.UUID)
	}

	lost := fmt.Sprintf("%s at %s has lost its configuration: its disk was wiped, or the node was reset", c.Name,
		c.Address)

	if c.node.Role == spec.RoleControlPlane && len(r.Plan.ControlPlanes()) == 1 {
		return fmt.Errorf("%s. It was the only control plane, so the data of etcd are lost with it: switch off its VM "+
			"('qm stop %d'), set cluster.recoverFrom to a snapshot, and name the node in lifecycle.replace, then run "+
			"'pulumi up' again", lost, c.node.VMID)
	}

	return fmt.Errorf("%s. It cannot leave the cluster by itself: to recreate it, name it in lifecycle.replace and "+
		"lifecycle.forceRemove, then run 'pulumi up' again", lost)
}

// otherMachineError names the VM of a node that another machine answers for.
func otherMachineError(c nodeChange, shown string) error {
	return talosapi.OtherMachineError(c.Target, fmt.Sprintf("VM %d", c.node.VMID), shown)
}

// expectedUUID is the SMBIOS UUID of the VM that was made for a node. The state has it, unless the VM is a clone: of
// those the provider does not read it.
func (r *Changes) expectedUUID(ctx context.Context, n plan.Node) (string, error) {
	if fromState, _ := r.UUIDs[n.Name].Get(ctx, wait.RequestTimeout); fromState != "" {
		return fromState, nil
	}

	return vmidentity.UUIDOf(ctx, r.Proxmox, n.VMID)
}
