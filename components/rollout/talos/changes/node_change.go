// Package changes is what changes nodes of Talos that run, or are about to: their first configuration, changes of it,
// upgrades of Talos and Kubernetes, and restarts.
package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/bootstrap"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/rollout/talos/health"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// Changes are changes of the configuration of nodes, and of the Talos and Kubernetes that they run. What takes a node
// down is done before the provider applies the configuration, which then needs no reboot any more.
type Changes struct {
	*cluster.Cluster

	rollout *rollout.Rollout
	// canaries of the changes that nodes take without a reboot.
	canaries  *rollout.Canaries
	bootstrap *bootstrap.Bootstrap
	// checkedDeprecations is done when the cluster was searched for what the next version of Kubernetes has removed.
	checkedDeprecations sync.Once
	// manifestsSynced says that what Talos installs into Kubernetes is up to date. It is only read
	// while a control plane is changed.
	manifestsSynced bool
}

// New returns the Changes of a cluster.
func New(c *cluster.Cluster, b *bootstrap.Bootstrap) *Changes {
	return &Changes{
		Cluster: c, rollout: rollout.New(c.Plan, c.Limiter, c.Progress), canaries: rollout.NewCanaries(), bootstrap: b,
	}
}

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
		if c.UUID, err = r.uuid(ctx, n); err != nil {
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

// pending is what a node runs, and what of its configuration is still to be changed.
func (r *Changes) pending(ctx context.Context, c nodeChange) (talosapi.System, []impact.Setting, error) {
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

// waitDisruption waits until the cluster can do without the node.
func (r *Changes) waitDisruption(ctx context.Context, c nodeChange, e impact.Effect) error {
	return rollout.WaitHealthy(ctx, r.Plan, r.Progress, "the cluster to tolerate the outage of "+c.Name,
		func(ctx context.Context) error { return r.checkDisruption(ctx, c, e) })
}

// checkDisruption says why the cluster cannot do without the node now.
func (r *Changes) checkDisruption(ctx context.Context, c nodeChange, effect impact.Effect) error {
	kube, err := cluster.Kubernetes(ctx, r.others(c), c.credentials)
	if err != nil {
		return err
	}

	if c.node.Role == spec.RoleControlPlane {
		members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)
		if err != nil {
			return err
		}

		return etcd.CheckDisruption(members, c.Name, effect)
	}

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return err
	}

	return rollout.CheckWorkers(r.Plan, nodes, c.Name)
}

// send gives a node that runs its changed configuration, as the last thing before the provider does: to a node that has
// shown a certificate of this cluster, and to no other. What needs a reboot has had it by then.
func (r *Changes) send(ctx context.Context, c nodeChange) error {
	data, err := c.wanted.Bytes()
	if err != nil {
		return err
	}

	apply := talosapi.ApplyLive
	if r.Plan.Apply == spec.ApplyStaged {
		apply = talosapi.ApplyStaged
	}

	err = wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		err := apply(ctx, c.Target, c.credentials, data)

		switch {
		case err == nil:
			return nil
		case errors.As(err, new(talosapi.RejectedError)):
			return err
		default:
			return cmp.Or(r.checkNotReset(ctx, c), wait.For("%v", err))
		}
	})
	if err != nil {
		return fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return nil
}

// checkVersion refuses a worker that is to run a newer Kubernetes than the control planes.
func (r *Changes) checkVersion(ctx context.Context, c nodeChange) error {
	return r.Versions.Check(ctx, r.Scope, c.node, "cluster.versions.kubernetes",
		talosimage.System(c.wanted).Kubernetes)
}

// others are the control planes to ask about the node.
func (r *Changes) others(c nodeChange) []talosapi.Target {
	return r.Peers(c.Target, c.node.Role)
}

// waitKubernetes waits for a control plane to speak with.
func (r *Changes) waitKubernetes(ctx context.Context, c nodeChange) (*kubeapi.Client, error) {
	return rollout.WaitKubernetes(ctx, r.Plan, r.Progress, func(ctx context.Context) (*kubeapi.Client, error) {
		return r.RetryingKubernetes(ctx, r.others(c), c.credentials)
	})
}

// watch tells whether the node serves.
func (r *Changes) watch(c nodeChange) *health.Watch {
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

	switch {
	case !strings.EqualFold(machine.UUID, c.UUID):
		return otherMachine(c, machine.UUID)
	default:
		return fmt.Errorf("%s at %s has lost its configuration: its disk was wiped, or the node was reset. It "+
			"cannot leave the cluster by itself: to recreate it, name it in lifecycle.replace and "+
			"lifecycle.forceRemove, then run "+
			"'pulumi up' again", c.Name, c.Address)
	}
}

// uuid is the SMBIOS UUID of the VM that was made for a node. The state has it, unless the VM is a clone: of those the
// provider does not read it.
func (r *Changes) uuid(ctx context.Context, n plan.Node) (string, error) {
	if known, _ := r.UUIDs[n.Name].Get(ctx, wait.RequestTimeout); known != "" {
		return known, nil
	}

	return r.shownUUID(ctx, n)
}

// shownUUID is the SMBIOS UUID that Proxmox VE gives the VM of a node.
func (r *Changes) shownUUID(ctx context.Context, n plan.Node) (string, error) {
	v, there, err := r.Proxmox.Find(ctx, n.VMID)
	if err != nil {
		return "", err
	}

	if !there {
		return "", fmt.Errorf("there is no VM with VMID %d", n.VMID)
	}

	config, err := r.Proxmox.Config(ctx, v)
	if err == nil && config.UUID == "" {
		err = fmt.Errorf("VM %d states no SMBIOS UUID, so no machine can show that it is this VM; give it one "+
			"('qm set %d --smbios1 uuid=$(uuidgen)' on its host), and stop and start it", n.VMID, n.VMID)
	}

	return config.UUID, err
}

// otherMachine is what is said of a machine in maintenance mode at a node's address that is not the node's VM.
func otherMachine(c nodeChange, shown string) error {
	return fmt.Errorf("another machine answers at %s: it shows SMBIOS UUID %q, and VM %d has %s. Nothing was sent to "+
		"it. Find what has the address (a VM or a machine with the same address, an old DHCP lease), take it off the "+
		"network, then run 'pulumi up' again",
		c.Address, shown, c.node.VMID, c.UUID)
}
