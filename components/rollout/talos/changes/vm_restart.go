package changes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// Restarts are the restarts of VMs; it is the rollout.System of Talos.
type Restarts struct {
	*Changes

	// discovery finds the address of a node that is not known yet; nil: all are set.
	discovery *proxmoxvm.Discovery
}

// NewRestarts returns the Restarts of a cluster whose nodes change, too.
func NewRestarts(c *Changes) *Restarts {
	return &Restarts{Changes: c, discovery: proxmoxvm.DiscoveryOf(c.Plan, c.Proxmox)}
}

// vmRestart is the restart of a node's VM.
type vmRestart struct {
	disruptedNode

	restarts *Restarts
	node     plan.Node
	// systemBefore is what ran before; empty: it is not known.
	systemBefore talosapi.System
}

// Restart is the restart of the VM of a node.
func (t *Restarts) Restart(n plan.Node) rollout.Node {
	return &vmRestart{disruptedNode: disruptedNode{Changes: t.Changes}, restarts: t, node: n}
}

// Evaluate finds out how the node is.
func (t *vmRestart) Evaluate(ctx context.Context) (_ rollout.Work, err error) {
	if t.nodeChange, err = t.restarts.readNode(ctx, t.node); err != nil {
		return rollout.Work{}, err
	}

	c := t.nodeChange

	if !t.restarts.inCluster(ctx, c) {
		// No cluster notices that it is gone.
		return rollout.Work{NotInCluster: true}, nil
	}

	if err := t.restarts.whyNoAnswer(ctx, c); err != nil {
		return t.evaluateUnreachable(ctx, err)
	}

	t.systemBefore, err = t.waitRunning(ctx, c)

	return rollout.Work{Effect: impact.EffectReboot}, err
}

// evaluateUnreachable finds out whether the pods of a node that does not answer run: Talos may be unreachable alone.
// The pods of a worker that is ready in Kubernetes are drained as those of any other.
func (t *vmRestart) evaluateUnreachable(ctx context.Context, why error) (rollout.Work, error) {
	c := t.nodeChange

	if c.node.Role == spec.RoleWorker {
		ready, err := t.readyInKubernetes(ctx, why)
		if err != nil {
			return rollout.Work{}, fmt.Errorf("it does not answer (%w), and it is unknown whether it is ready in "+
				"Kubernetes: %w", why, err)
		}

		if ready {
			t.Progress(fmt.Sprintf("%s does not answer (%v), but is ready in Kubernetes: it is drained", c.Name, why))

			return rollout.Work{Effect: impact.EffectReboot}, nil
		}
	}

	t.Progress(fmt.Sprintf("%s does not answer (%v): its VM is restarted as it is", c.Name, why))

	return rollout.Work{Effect: impact.EffectReboot, Unreachable: true}, t.restarts.checkUnreachable(ctx, c)
}

// readyInKubernetes asks Kubernetes, which notices after most of a minute that a node is silent. One whose address
// alone is unknown may well not be.
func (t *vmRestart) readyInKubernetes(ctx context.Context, why error) (bool, error) {
	kube, err := t.Kubernetes(ctx)
	if err != nil {
		return false, err
	}

	grace := wait.GracePeriod{Bound: 6 * t.Plan.SettleTimeout}
	if errors.Is(why, errAddressUnknown) {
		grace.Bound = 0
	}

	return staysReady(ctx, kube, t.Name, &grace, t.Plan.ReadyTimeout, t.Progress)
}

// staysReady says whether a node is ready in Kubernetes until a grace period ends.
func staysReady(ctx context.Context, kube *kubeapi.Client, name string, grace *wait.GracePeriod, bound time.Duration,
	progress wait.Reporter,
) (ready bool, err error) {
	err = wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		node, there, err := kube.Node(ctx, name)
		if err != nil {
			return wait.For("Kubernetes to say whether %s is ready (%v)", name, wait.Reason(err))
		}

		if ready = there && node.Ready; !ready || grace.Expired() {
			return nil
		}

		return wait.For("Kubernetes to notice whether %s is down", name)
	})

	return ready, err
}

// WaitRejoined waits until the node has booted again and what runs on it is up.
func (t *vmRestart) WaitRejoined(ctx context.Context) error {
	err := wait.Until(ctx, t.Plan.UpgradeTimeout, t.Progress, func(ctx context.Context) error {
		if t.Address != "" {
			return nil
		}

		t.restarts.discovery.Locate(ctx, []plan.Node{t.node}, t.Addresses)
		t.Address = t.Addresses.Get(t.Name)

		return wait.For("the guest agent of %s to report its address", t.Name)
	})
	if err != nil {
		return err
	}

	if _, err := t.waitBooted(ctx, t.nodeChange, t.systemBefore); err != nil {
		return err
	}

	return t.disruptedNode.WaitRejoined(ctx)
}

// readNode is a node as it is addressed now. A hook of its VM sees neither credentials nor addresses.
func (t *Restarts) readNode(ctx context.Context, n plan.Node) (c nodeChange, err error) {
	c = nodeChange{node: n, Target: talosapi.Target{Name: n.Name}}

	if c.credentials, err = t.CurrentCredentials(ctx); err != nil {
		return c, err
	}

	t.discovery.Locate(ctx, append(t.Plan.ControlPlanes(), n), t.Addresses)

	c.Address = t.Addresses.Get(n.Name)

	// In a preview nothing is done to what answers.
	if !t.DryRun {
		c.UUID, err = vmidentity.UUIDOf(ctx, t.Proxmox, n.VMID)
	}

	return c, err
}

// inCluster says whether the node is one of a cluster: the cluster has been started, and the node has its
// configuration. Another machine in maintenance mode at its address says nothing of it. One without an address may have
// a guest agent that does not answer: then the cluster tells.
func (t *Restarts) inCluster(ctx context.Context, c nodeChange) bool {
	others := cluster.Without(t.peersOf(c), c.Target)

	switch {
	case c.Address != "" && !talosapi.Unconfigured(ctx, c.Target):
		return talosapi.Founded(ctx, t.peersOf(c), c.credentials)
	case c.Address != "":
		return !isUnconfigured(ctx, c) && talosapi.Founded(ctx, others, c.credentials)
	case !talosapi.Founded(ctx, others, c.credentials):
		return false
	}

	kube, err := cluster.Kubernetes(ctx, others, c.credentials)
	if err != nil {
		return true // it is not known to be none
	}

	_, registered, err := kube.Node(ctx, c.Name)
	if err != nil || registered || c.node.Role != spec.RoleControlPlane {
		return err != nil || registered
	}

	members, err := talosapi.EtcdMembers(ctx, others, c.credentials)

	return err != nil || slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Name == c.Name })
}

// isUnconfigured says whether the machine in maintenance mode at the address of a node is the node's VM.
func isUnconfigured(ctx context.Context, c nodeChange) bool {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	machine, err := talosapi.ConnectMaintenance(ctx, c.Target)
	if err != nil {
		return false
	}
	defer machine.Close()

	return strings.EqualFold(machine.UUID, c.UUID)
}

// SetUpOn is the SMBIOS UUID of the machine that has the configuration of a node: it shows it to the credentials of the
// cluster alone.
func (t *Restarts) SetUpOn(ctx context.Context, n plan.Node) (string, error) {
	credentials, err := t.CurrentCredentials(ctx)
	if err != nil {
		return "", err
	}

	t.discovery.Locate(ctx, []plan.Node{n}, t.Addresses)

	target := talosapi.Target{Name: n.Name, Address: t.Addresses.Get(n.Name)}
	if target.Address == "" {
		return "", errAddressUnknown
	}

	if !t.DryRun {
		if err := t.WhyUnreachable(ctx, target, credentials); err != nil {
			return "", err
		}
	}

	return talosapi.MachineUUID(ctx, target, credentials)
}

var errAddressUnknown = errors.New("its address is not known")

// whyNoAnswer is why a node does not answer, nil when it does.
func (t *Restarts) whyNoAnswer(ctx context.Context, c nodeChange) error {
	if c.Address == "" {
		return errAddressUnknown
	}

	return t.WhyUnreachable(ctx, c.Target, c.credentials)
}

// checkUnreachable checks that etcd does without a control plane that does not answer.
func (t *Restarts) checkUnreachable(ctx context.Context, c nodeChange) error {
	if c.node.Role != spec.RoleControlPlane {
		return nil
	}

	return rollout.WaitHealthy(ctx, t.Plan, t.Progress, "etcd", func(context.Context) error {
		// One that is not reached may take as long as a question may.
		q := t.AskQuorum(ctx, c.credentials, func(n plan.Node) string { return t.Addresses.Get(n.Name) })

		switch {
		case etcd.Led(q.Members):
			return etcd.CanStop(q.Members, c.Name)
		case q.Planned == 1:
			return nil
		default:
			return q.WhyUnknown(c.Name)
		}
	})
}

// PreviewRestart warns of what would keep the node from being restarted as it is now.
func (t *Restarts) PreviewRestart(ctx context.Context, n plan.Node) string {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	c, err := t.readNode(ctx, n)
	if err != nil || n.Role != spec.RoleControlPlane {
		return ""
	}

	return t.previewDisruption(ctx, c, impact.EffectReboot)
}

// Kubernetes is that of whatever control plane answers.
func (t *Restarts) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	c, err := t.CurrentCredentials(ctx)
	if err != nil {
		return nil, err
	}

	return cluster.Kubernetes(ctx, t.ControlPlanes(), c)
}

// EtcdMembers are the names of the nodes that the first control plane that answers lists as members of etcd. One that
// has not started yet has no name, so its address tells.
func (t *Restarts) EtcdMembers(ctx context.Context, _ *kubeapi.Client) ([]string, error) {
	c, err := t.CurrentCredentials(ctx)
	if err != nil {
		return nil, err
	}

	members, err := talosapi.ListEtcdMembers(ctx, t.Peers(talosapi.Target{}, spec.RoleWorker), c)
	if err != nil {
		return nil, err
	}

	var names []string

	for _, n := range t.Plan.ControlPlanes() {
		if slices.ContainsFunc(members, func(m etcd.Member) bool {
			return m.Name == n.Name || m.Name == "" && m.Address == t.Addresses.Get(n.Name)
		}) {
			names = append(names, n.Name)
		}
	}

	return names, nil
}
