package k3s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/wait"
)

// kubernetesAskingLast is Kubernetes by the first of the servers whose address is known and that answers. One of them
// is asked last: the one that something happens to.
func (c *Cluster) kubernetesAskingLast(ctx context.Context, last string) (*kubeapi.Client, error) {
	return c.kubernetesOfFirst(ctx, c.serversEndingWith(last))
}

// serversEndingWith are those of the plan, and one of them comes last.
func (c *Cluster) serversEndingWith(last string) []plan.Node {
	servers := slices.Clone(c.Plan.ControlPlanes())
	slices.SortStableFunc(servers, func(a, b plan.Node) int { return sortKey(a.Name == last) - sortKey(b.Name == last) })

	return servers
}

// kubernetesOfFirst is Kubernetes by the first of some servers. Its error is what is waited for.
func (c *Cluster) kubernetesOfFirst(ctx context.Context, servers []plan.Node) (*kubeapi.Client, error) {
	kube, unreachable, err := c.firstAnswering(ctx, servers)
	if kube != nil || err != nil {
		return kube, err
	}

	if len(unreachable) == 0 {
		return nil, errors.New("the address of a server")
	}

	var missed []string
	for _, m := range unreachable {
		missed = append(missed, fmt.Sprintf("the Kubernetes API of %s (%v)", m.Name, m.Why))
	}

	return nil, errors.New(strings.Join(missed, "; "))
}

// anyKubernetes is Kubernetes by the first server that answers.
func (c *Cluster) anyKubernetes(ctx context.Context) (*kubeapi.Client, error) {
	kube, unreachable, err := c.firstAnswering(ctx, c.Plan.ControlPlanes())
	if kube != nil || err != nil {
		return kube, err
	}

	return nil, rollout.NoneReachable(unreachable)
}

// firstAnswering returns Kubernetes by the first of some servers that answers, and those that do not. One that takes a
// connection and says nothing leaves time for the others, and for what the caller asks next.
func (c *Cluster) firstAnswering(
	ctx context.Context, servers []plan.Node,
) (kube *kubeapi.Client, unreachable []rollout.Unreachable, err error) {
	for i, server := range servers {
		if c.Addresses.Get(server.Name) == "" {
			continue
		}

		if kube, err = c.kubernetesOf(ctx, server.Name); err != nil {
			return nil, nil, err
		}

		_, why := askWithinShare(ctx, len(servers)-i, kube.Nodes)
		if why == nil {
			return kube, nil, nil
		}

		unreachable = append(unreachable, rollout.Unreachable{Name: server.Name, Why: wait.Reason(why)})
	}

	return nil, unreachable, nil
}

// SetUpOn is the SMBIOS UUID of the machine that has joined as a node, as Kubernetes has it.
func (c *Cluster) SetUpOn(ctx context.Context, n plan.Node) (string, error) {
	if err := c.locate(ctx); err != nil {
		return "", err
	}

	kube, err := c.anyKubernetes(ctx)
	if err != nil {
		return "", err
	}

	node, _, err := kube.Node(ctx, n.Name)

	return node.Machine, err
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

// serverAddresses of the servers; empty where one is not known.
func (c *Cluster) serverAddresses() []string {
	var all []string
	for _, server := range c.Plan.ControlPlanes() {
		all = append(all, c.Addresses.Get(server.Name))
	}

	return all
}

// kubernetesOf is Kubernetes by one server.
func (c *Cluster) kubernetesOf(ctx context.Context, server string) (*kubeapi.Client, error) {
	kubeconfig, err := c.kubeconfig(ctx)
	if err != nil {
		return nil, err
	}

	return c.connect([]byte(kubeconfig), c.Addresses.Get(server))
}

func sortKey(later bool) int {
	if later {
		return 1
	}

	return 0
}

// kubeconfig waits for the credentials of the cluster.
func (c *Cluster) kubeconfig(ctx context.Context) (string, error) {
	kubeconfig, known := c.Kubeconfig.Get(ctx, c.Plan.NodeTimeout)
	if !known && errors.Is(ctx.Err(), context.Canceled) {
		return "", context.Cause(ctx)
	}

	if !known {
		return "", fmt.Errorf("the credentials of the cluster were not available within %s", c.Plan.NodeTimeout)
	}

	return kubeconfig, nil
}

// askWithinShare asks one of some questions, and leaves the others, and the caller, their part of the time that is
// left.
func askWithinShare[T any](ctx context.Context, questions int, ask func(context.Context) (T, error)) (T, error) {
	bound := wait.RequestTimeout
	if end, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(end)/time.Duration(questions+1))
	}

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	return ask(ctx)
}

// locate finds the addresses of the servers: a hook of a VM does not see them.
func (c *Cluster) locate(ctx context.Context) error {
	_, err := c.kubeconfig(ctx)
	if err == nil {
		c.discovery.Locate(ctx, c.Plan.ControlPlanes(), c.Addresses)
	}

	return err
}
