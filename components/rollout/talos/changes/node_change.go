// Package changes is what changes nodes of Talos that run, or are about to: their first configuration, changes of it,
// upgrades of Talos and Kubernetes, and restarts.
package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	configtypes "github.com/siderolabs/talos/pkg/machinery/config/config"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/machineconfig/running"
	"talos-proxmox/components/netprobe"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
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
	// warned are warnings of changes that were shown already: each node has the same.
	warned sync.Map
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

// evaluation is what a change does to a node, and what the node ran when that was found out.
type evaluation struct {
	impact.NodeImpact

	running talosapi.System
	blocked error
}

// evaluateWhenReachable evaluates a change as soon as the node answers.
func (r *Changes) evaluateWhenReachable(ctx context.Context, c nodeChange) (evaluation, error) {
	var found evaluation

	err := wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		found = r.evaluate(ctx, c)
		if found.Effect == impact.EffectUnknown {
			return cmp.Or(r.checkNotReset(ctx, c), wait.For("%s at %s: %s", c.Name, c.Address, found.Why))
		}

		return found.blocked
	})
	if err != nil {
		return found, fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return found, nil
}

// askWithRetry asks a node what it runs as soon as it answers: a control plane that starts a component again may be too
// busy for one question.
func (r *Changes) askWithRetry(
	ctx context.Context, t talosapi.Target, c talosapi.Credentials,
) (talosapi.System, error) {
	var now talosapi.System

	err := wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) (err error) {
		if now, err = talosapi.Ask(ctx, t, c); err != nil {
			return notAnswering(t, err)
		}

		return nil
	})

	return now, err
}

func notAnswering(t talosapi.Target, err error) error {
	return wait.For("%s at %s to answer (%v)", t.Name, t.Address, err)
}

// evaluate asks the node what it runs, and what it thinks of the configuration.
func (r *Changes) evaluate(ctx context.Context, c nodeChange) evaluation {
	transition := impact.Change{Apply: r.Plan.Apply}

	running, err := talosapi.Ask(ctx, c.Target, c.credentials)
	if err == nil && c.wanted == nil {
		err = errors.New("its new configuration is not known yet")
	}

	if err == nil {
		transition.Now, transition.Wanted = running.System, talosimage.System(c.wanted)
		transition.Now.Kubernetes = talosimage.System(running.Configuration).Kubernetes
		transition.Settings, err = impact.Settings(running.Configuration, c.wanted)

		if r.defaultInstaller(c.node) {
			// It holds no extensions, and nothing was said of those that the node runs with.
			transition.Wanted.Schematic = ""
		}
	}

	if err == nil && !transition.Upgrades() {
		// A system that is about to be replaced need not know what the next one does.
		transition.Reboot, err = r.needsReboot(ctx, c, running.Talos, transition.Settings)
	}

	var rejected talosapi.RejectedError
	if errors.As(err, &rejected) {
		transition.Rejected, err = rejected, nil
	}

	transition.Unreachable = err
	found := evaluation{running: running, NodeImpact: impact.NodeImpact{
		Node: c.Name, Pool: c.node.Pool, Role: string(c.node.Role),
		Now: transition.Now.String(), Wanted: transition.Wanted.String(),
		Settings: transition.Settings,
		Limits:   impact.Limits{MaxUnavailable: r.Plan.MaxUnavailable, Canary: r.Plan.Canary},
	}}

	var blocked error
	found.Effect, found.Why, blocked = transition.Evaluate()
	found.Kubernetes = err == nil && transition.Rejected == nil &&
		transition.Now.Kubernetes != transition.Wanted.Kubernetes && r.Plan.Apply != spec.ApplyStaged

	if err == nil && transition.Rejected == nil {
		blocked = errors.Join(blocked, r.checkRunning(ctx, c, running))
	}

	found.blocked = found.Refuse(blocked)

	return found
}

// checkRunning refuses what Talos accepts for a node that runs, and what would harm it later.
func (r *Changes) checkRunning(ctx context.Context, c nodeChange, now talosapi.System) error {
	err := running.CheckEncryption(now.Configuration, c.wanted, now.Volumes, r.encryptionRemedy())

	if c.node.Role == spec.RoleControlPlane {
		err = errors.Join(err, running.CheckNetwork(now.Configuration, c.wanted), r.checkEndpointFree(ctx, c, now))
	}

	return err
}

// checkEndpointFree refuses a new virtual address at which a machine answers, unless a control plane has it already:
// the control planes would take the address from that machine.
func (r *Changes) checkEndpointFree(ctx context.Context, c nodeChange, now talosapi.System) error {
	if !r.Plan.VIP.IsValid() || hasEndpoint(now.Configuration, r.Plan.VIP) || !hasEndpoint(c.wanted, r.Plan.VIP) {
		return nil
	}

	port := netprobe.Listening(ctx, r.Plan.VIP)
	if port == 0 {
		return nil
	}

	for _, peer := range r.peersOf(c) {
		if is, err := talosapi.Ask(ctx, peer, c.credentials); err == nil && hasEndpoint(is.Configuration, r.Plan.VIP) {
			return nil
		}
	}

	return spec.Problem{
		Path: "cluster.endpoint.address", Rule: fmt.Sprintf("is to be the virtual address, and a machine answers there "+
			"already, on port %d", port), Value: r.Plan.VIP.String(),
		Remedy: "find out which machine has it, or choose another address",
	}
}

// hasEndpoint says that a control plane has an address for its cluster: as the endpoint, or by a patch.
func hasEndpoint(cfg talosconfig.Provider, address netip.Addr) bool {
	return cfg != nil && (cfg.K8sClusterConfig() != nil &&
		cfg.K8sClusterConfig().ClusterEndpoint().Hostname() == address.String() ||
		slices.ContainsFunc(cfg.NetworkVirtualIPConfigs(), func(v configtypes.NetworkVirtualIPConfig) bool {
			return v.VIP() == address
		}))
}

// minControlPlanesToReplace is how many control planes a cluster has of which one may leave.
const minControlPlanesToReplace = 3

// encryptionRemedy says how the encryption of a cluster changes: with its nodes. Nodes that are replaced get no changed
// configuration before. The others would, so that all are replaced at once.
func (r *Changes) encryptionRemedy() string {
	remedy := "put the key, or the patch that sets it, back; or name all nodes of the cluster in lifecycle.replace in " +
		"the same update, none of which may be in the list already"

	if len(r.Plan.ControlPlanes()) < minControlPlanesToReplace {
		remedy += "; with fewer than three control planes, add some with the former value before that"
	}

	return remedy
}

// defaultInstaller says whether a node is upgraded from an installer of which nothing was set.
func (r *Changes) defaultInstaller(n plan.Node) bool {
	id, err := talosimage.SchematicID(r.Plan, r.Plan.PoolOf(n).Image, n)

	return err == nil && id == ""
}

func (r *Changes) needsReboot(ctx context.Context, c nodeChange, version string,
	settings []impact.Setting,
) (bool, error) {
	data, err := c.wanted.Bytes()
	if err != nil {
		return false, err
	}

	reboots, err := talosapi.NeedsReboot(ctx, c.Target, c.credentials, data)

	return reboots || err == nil && impact.WaitsForReboot(version, settings), err
}

// needsRebootNow asks a node that may have been upgraded meanwhile.
func (r *Changes) needsRebootNow(ctx context.Context, c nodeChange) (bool, error) {
	now, err := r.askWithRetry(ctx, c.Target, c.credentials)
	if err != nil {
		return false, err
	}

	settings, err := impact.Settings(now.Configuration, c.wanted)
	if err != nil {
		return false, err
	}

	return r.needsReboot(ctx, c, now.Talos, settings)
}
