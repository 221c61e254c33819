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

// api is Kubernetes by the first of the servers whose address is known and that answers. One of them is asked last: the
// one that something happens to.
func (c *Cluster) api(ctx context.Context, last string) (*kubeapi.Client, error) {
	return c.first(ctx, c.servers(last))
}

// servers are those of the plan, and one of them comes last.
func (c *Cluster) servers(last string) []plan.Node {
	servers := slices.Clone(c.Plan.ControlPlanes())
	slices.SortStableFunc(servers, func(a, b plan.Node) int { return order(a.Name == last) - order(b.Name == last) })

	return servers
}

// first is Kubernetes by the first of some servers. Its error is what is waited for.
func (c *Cluster) first(ctx context.Context, servers []plan.Node) (*kubeapi.Client, error) {
	kube, others, err := c.ask(ctx, servers)
	if kube != nil || err != nil {
		return kube, err
	}

	if len(others) == 0 {
		return nil, errors.New("the address of a server")
	}

	var missed []string
	for _, m := range others {
		missed = append(missed, fmt.Sprintf("the Kubernetes API of %s (%v)", m.Name, m.Why))
	}

	return nil, errors.New(strings.Join(missed, "; "))
}

// answering is Kubernetes by the first server that answers.
func (c *Cluster) answering(ctx context.Context) (*kubeapi.Client, error) {
	kube, others, err := c.ask(ctx, c.Plan.ControlPlanes())
	if kube != nil || err != nil {
		return kube, err
	}

	return nil, rollout.NoneReachable(others)
}

// ask returns Kubernetes by the first of some servers that answers, and those that do not. One that takes a connection
// and says nothing leaves time for the others, and for what the caller asks next.
func (c *Cluster) ask(
	ctx context.Context, servers []plan.Node,
) (kube *kubeapi.Client, others []rollout.Unreachable, err error) {
	for i, server := range servers {
		if c.Addresses.Get(server.Name) == "" {
			continue
		}

		if kube, err = c.apiOf(ctx, server.Name); err != nil {
			return nil, nil, err
		}

		_, why := share(ctx, len(servers)-i, kube.Nodes)
		if why == nil {
			return kube, nil, nil
		}

		others = append(others, rollout.Unreachable{Name: server.Name, Why: wait.Reason(why)})
	}

	return nil, others, nil
}

// SetUpOn is the SMBIOS UUID of the machine that has joined as a node, as Kubernetes has it.
func (c *Cluster) SetUpOn(ctx context.Context, n plan.Node) (string, error) {
	if err := c.locate(ctx); err != nil {
		return "", err
	}

	kube, err := c.answering(ctx)
	if err != nil {
		return "", err
	}

	return kube.Machine(ctx, n.Name)
}

// members are the servers that Kubernetes knows as members of etcd.
func (c *Cluster) members(ctx context.Context, nodes []kubeapi.Node) []etcd.Member {
	var members []etcd.Member

	for _, server := range c.Plan.ControlPlanes() {
		i := slices.IndexFunc(nodes, func(n kubeapi.Node) bool { return n.Name == server.Name })
		if i >= 0 {
			ask, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
			members = append(members, etcd.Member{Name: server.Name, Problem: c.problem(ask, nodes[i])})

			cancel()
		}
	}

	return members
}

// problem is why a server is not healthy; empty: it is. What Kubernetes says of a node is old by up to a minute, so the
// server's own API server is asked, which has its answer from its own member of etcd. One whose address is not known
// cannot be asked.
func (c *Cluster) problem(ctx context.Context, server kubeapi.Node) string {
	switch {
	case !server.Ready:
		return "it is not ready in Kubernetes"
	case c.Addresses.Get(server.Name) == "":
		return ""
	}

	kube, err := c.apiOf(ctx, server.Name)
	if err == nil {
		_, err = kube.Nodes(ctx)
	}

	if err != nil {
		return fmt.Sprintf("its API server does not answer: %v", wait.Reason(err))
	}

	return ""
}

// addresses of the servers; empty where one is not known.
func (c *Cluster) addresses() []string {
	var all []string
	for _, server := range c.Plan.ControlPlanes() {
		all = append(all, c.Addresses.Get(server.Name))
	}

	return all
}

// apiOf is Kubernetes by one server.
func (c *Cluster) apiOf(ctx context.Context, server string) (*kubeapi.Client, error) {
	kubeconfig, err := c.kubeconfig(ctx)
	if err != nil {
		return nil, err
	}

	return c.connect([]byte(kubeconfig), c.Addresses.Get(server))
}

func order(later bool) int {
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

// share asks one of some questions, and leaves the others, and the caller, their part of the time that is left.
func share[T any](ctx context.Context, questions int, ask func(context.Context) (T, error)) (T, error) {
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
