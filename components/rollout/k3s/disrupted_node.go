package k3s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// disruptedNode implements rollout.Node for one node of K3s.
type disruptedNode struct {
	*Cluster

	node plan.Node
}

// WaitDisruptable waits until the cluster can do without the node.
func (k disruptedNode) WaitDisruptable(ctx context.Context, e impact.Effect) error {
	_, err := k.waitHealthy(ctx, e)

	return err
}

// nodeStatus is a node as Kubernetes has it: whether a server has answered at last, whether it is there, and how it is.
type nodeStatus struct {
	kubeapi.Node
	answered, registered bool
}

func (k disruptedNode) waitHealthy(ctx context.Context, e impact.Effect) (status nodeStatus, err error) {
	err = rollout.WaitHealthy(ctx, k.Plan, k.Progress, "the cluster to tolerate the outage of "+k.node.Name,
		func(ctx context.Context) (err error) {
			status, err = k.checkStatus(ctx, k.node, e)

			return err
		})

	return status, err
}

// Backup keeps etcd as it is now.
func (k disruptedNode) Backup(ctx context.Context) error { return k.backupEtcd(ctx, k.node.Name) }

// Kubernetes waits for a server that answers.
func (k disruptedNode) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	return rollout.WaitKubernetes(ctx, k.Plan, k.Progress, func(ctx context.Context) (*kubeapi.Client, error) {
		kube, err := k.kubernetesAskingLast(ctx, k.node.Name)
		if err != nil {
			return nil, err
		}

		return kube.WithRetry(k.Plan.SettleTimeout, k.Progress, k.serverAddresses()...)
	})
}

// isOnlyNode says that the node is all there is: its pods have no other place.
func (k disruptedNode) isOnlyNode() bool { return len(k.Plan.Nodes()) == 1 }

// checkStatus says how a node is, and why the cluster cannot do without it, or why that is not known.
func (c *Cluster) checkStatus(ctx context.Context, n plan.Node, e impact.Effect) (status nodeStatus, err error) {
	kube, err := c.kubernetesAskingLast(ctx, n.Name)
	if err != nil {
		return status, err
	}

	status.answered = true

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return status, err
	}

	if i := slices.IndexFunc(nodes, func(found kubeapi.Node) bool { return found.Name == n.Name }); i >= 0 {
		status.Node, status.registered = nodes[i], true
	}

	return status, c.checkDisruption(ctx, kube, nodes, status, n, e)
}

// checkDisruption says why the cluster cannot do without the node now. For an upgrade, servers count that are planned
// and that Kubernetes does not know.
func (c *Cluster) checkDisruption(
	ctx context.Context, kube *kubeapi.Client, nodes []kubeapi.Node, status nodeStatus, n plan.Node, e impact.Effect,
) error {
	if n.Role != spec.RoleControlPlane {
		return c.CheckWorkers(nodes, n.Name)
	}

	members, err := c.votingServers(ctx, kube, nodes)
	if err != nil {
		return err
	}

	if status.registered && !status.Ready {
		// Of a server without an address, Kubernetes is believed: it may be what the quorum needs.
		err = etcd.CanStop(members, n.Name)
	} else {
		c.markWithoutAddress(members)

		if err = c.checkUnplannedServers(members, n.Name); err == nil {
			err = c.CheckEtcd(members, n.Name, impact.EffectReboot)
		}
	}

	if err != nil {
		return err
	}

	servers := len(c.Plan.ControlPlanes())
	if e != impact.EffectUpgrade || servers == 1 {
		return nil
	}

	ready := 0

	for _, m := range members {
		if m.Name != n.Name && m.Problem == "" {
			ready++
		}
	}

	if need := etcd.QuorumSize(servers); ready < need {
		return spec.Blocked(
			fmt.Sprintf("etcd needs %d other servers that are ready, and %d are", need, ready),
			"repair the others first, then run 'pulumi up' again",
		)
	}

	return nil
}

// checkUnplannedServers says which server that has left the plan is not healthy. It is removed at the end of an update,
// and counts for the quorum until then.
func (c *Cluster) checkUnplannedServers(members []etcd.Member, name string) error {
	for _, m := range members {
		if m.Name == name || m.Problem == "" || c.isPlannedServer(m.Name) {
			continue
		}

		return spec.Blocked(
			fmt.Sprintf("%s is no longer in the plan, but still a member of etcd, and not healthy (%s)", m, m.Problem),
			"remove it in an update of its own: undo the other changes, run 'pulumi up', then make the other "+
				"changes again; or, if it has no VM any more, delete its node ('kubectl delete node "+m.Name+"')",
		)
	}

	return nil
}

// votingServers are the members of etcd, and the planned servers that Kubernetes knows and K3s has noted no member of
// yet. Servers that have left the plan count for the quorum until they are removed.
func (c *Cluster) votingServers(
	ctx context.Context, kube *kubeapi.Client, nodes []kubeapi.Node,
) ([]etcd.Member, error) {
	// A hook may run before the addresses of the other servers are known.
	c.discovery.Locate(ctx, c.Plan.ControlPlanes(), c.Addresses)

	members, err := c.etcdMembers(ctx, kube)
	if err != nil {
		return nil, err
	}

	for _, n := range nodes {
		listed := slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Name == n.Name })
		if !listed && c.isPlannedServer(n.Name) {
			members = append(members, etcd.Member{Name: n.Name, Problem: c.serverProblem(ctx, n)})
		}
	}

	return members, nil
}

// markWithoutAddress marks planned servers that are healthy by what Kubernetes says alone: their own API server could
// not be asked.
func (c *Cluster) markWithoutAddress(members []etcd.Member) {
	for i, m := range members {
		if m.Problem == "" && c.isPlannedServer(m.Name) && c.Addresses.Get(m.Name) == "" {
			members[i].Problem = "its address is not known, because its guest agent does not report it"
		}
	}
}

// etcdMembers are those of etcd, as Kubernetes knows them: those of servers, too, that the plan has no longer.
func (c *Cluster) etcdMembers(ctx context.Context, kube *kubeapi.Client) ([]etcd.Member, error) {
	servers, err := kube.Servers(ctx)
	if err != nil {
		return nil, err
	}

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return nil, err
	}

	var members []etcd.Member

	for _, n := range nodes {
		s, is := servers[n.Name]
		if !is || s.Member == "" {
			continue
		}

		m := etcd.Member{Name: n.Name, Learner: s.Learner}

		// What Kubernetes says of one that was shut down is old. A planned one may have been started since.
		if s.Leaving && !c.isPlannedServer(n.Name) {
			m.Problem = shutDownProblem
		} else if m.Problem = c.serverProblem(ctx, n); s.Leaving && m.Problem != "" {
			m.Problem = shutDownProblem
		}

		members = append(members, m)
	}

	return members, nil
}

// shutDownProblem is what is wrong with a server whose removal was begun.
const shutDownProblem = "its VM is shut down for the removal"

// isPlannedServer says whether the plan has a server of the name.
func (c *Cluster) isPlannedServer(name string) bool {
	return slices.ContainsFunc(c.Plan.ControlPlanes(), func(n plan.Node) bool { return n.Name == name })
}

// serverProblem is why a server is not healthy; empty: it is. What Kubernetes says of a node is old by up to a minute,
// so the server's own API server is asked, which has its answer from its own member of etcd. Where no address is known,
// as of one that has left the plan, Kubernetes is believed.
func (c *Cluster) serverProblem(ctx context.Context, server kubeapi.Node) string {
	switch {
	case !server.Ready:
		return "it is not ready in Kubernetes"
	case c.Addresses.Get(server.Name) == "":
		return ""
	}

	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	kube, err := c.kubernetesOf(ctx, server.Name)
	if err == nil {
		_, err = kube.Nodes(ctx)
	}

	if err != nil {
		return fmt.Sprintf("its API server does not answer: %v", wait.Reason(err))
	}

	return ""
}

// snapshotName begins the names of the snapshots, and of no others: K3s adds the node and the time, and on each server
// keeps lifecycle.backup.keep of those that begin so.
const snapshotName = "talos-proxmox-auto"

// backupEtcd has a server keep etcd on its disk before something happens to a node. Another one is asked first: what it
// keeps outlives the node.
func (c *Cluster) backupEtcd(ctx context.Context, node string) error {
	if c.Plan.Backup == nil {
		return nil
	}

	if err := c.locate(ctx); err != nil {
		return err
	}

	identity, known := c.Identity.Get(ctx, c.Plan.NodeTimeout)
	if !known {
		return fmt.Errorf("the identity of the cluster was not available within %s", c.Plan.NodeTimeout)
	}

	var failed []string

	for _, server := range c.serversWithLast(node) {
		address := c.Addresses.Get(server.Name)
		if address == "" {
			continue
		}

		ask, cancel := context.WithTimeout(ctx, c.Plan.TransferTimeout)
		taken, err := kubeapi.SaveK3sSnapshot(ask, address,
			[]byte(identity.ServerCA.Certificate), identity.Token, snapshotName, c.Plan.Backup.Keep)

		cancel()

		switch {
		case errors.Is(err, kubeapi.ErrNoSnapshots):
			c.Warn("lifecycle.backup: " + server.Name + ": " + err.Error() + " (before April 2024); " +
				"only its last scheduled snapshot is available")

			return nil
		case err == nil:
			c.Progress(fmt.Sprintf("snapshot of etcd saved on %s as %s", server.Name, taken))

			return nil
		}

		failed = append(failed, fmt.Sprintf("%s: %v", server.Name, wait.Reason(err)))
	}

	return fmt.Errorf("no server has taken a snapshot of etcd (%s); fix the cause, or set lifecycle.backup.enabled "+
		"to false",
		strings.Join(failed, "; "))
}
