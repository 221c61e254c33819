package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/wait"
)

// k3sServers speak for a cluster of K3s.
type k3sServers struct {
	plan *plan.Plan
	// known are addresses by node name, and the kubeconfig by no name.
	known *proxmoxvm.AddressBook
	// connect is kubeapi.New.
	connect func(kubeconfig []byte, address string) (*kubeapi.Client, error)
}

func serversOf(p *plan.Plan, known *proxmoxvm.AddressBook) k3sServers {
	return k3sServers{p, known, kubeapi.New}
}

// api is Kubernetes by the first of the servers whose address is known and that answers. One of them is asked last: it is the
// one that something happens to.
func (s k3sServers) api(ctx context.Context, last string) (*kubeapi.Client, error) {
	servers := slices.Clone(s.plan.ControlPlanes())
	slices.SortStableFunc(servers, func(a, b plan.Node) int { return order(a.Name == last) - order(b.Name == last) })

	return s.first(ctx, servers)
}

// first is Kubernetes by the first of some servers. Its error is what is waited for.
func (s k3sServers) first(ctx context.Context, servers []plan.Node) (*kubeapi.Client, error) {
	kube, others, err := s.ask(ctx, servers)
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
func (s k3sServers) answering(ctx context.Context) (*kubeapi.Client, error) {
	kube, others, err := s.ask(ctx, s.plan.ControlPlanes())
	if kube != nil || err != nil {
		return kube, err
	}

	return nil, rollout.NoneReachable(others)
}

// ask returns Kubernetes by the first of some servers that answers, and those that do not. One that takes a connection and
// says nothing leaves time for the others, and for what the caller asks next.
func (s k3sServers) ask(ctx context.Context, servers []plan.Node) (kube *kubeapi.Client, others []rollout.Unreachable, err error) {
	for i, server := range servers {
		if s.known.Get(server.Name) == "" {
			continue
		}

		if kube, err = s.apiOf(server.Name); err != nil {
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

// members are the servers that Kubernetes knows as members of etcd. What Kubernetes says of a node is old by up to a
// minute, so each server's own API server is asked, which has its answer from its own member.
func (s k3sServers) members(ctx context.Context, nodes []kubeapi.Node) []lifecycle.Member {
	var members []lifecycle.Member

	for _, server := range s.plan.ControlPlanes() {
		i := slices.IndexFunc(nodes, func(n kubeapi.Node) bool { return n.Name == server.Name })
		if i < 0 {
			continue
		}

		m := lifecycle.Member{Name: server.Name}

		if !nodes[i].Ready {
			m.Problem = "it is not ready in Kubernetes"
		} else if err := s.serves(ctx, server.Name); err != nil {
			m.Problem = fmt.Sprintf("its API server does not answer: %v", wait.Reason(err))
		}

		members = append(members, m)
	}

	return members
}

// serves is why the API server of a server does not answer. One whose address is not known cannot be asked.
func (s k3sServers) serves(ctx context.Context, server string) error {
	if s.known.Get(server) == "" {
		return nil
	}

	kube, err := s.apiOf(server)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, wait.Ask)
	defer cancel()

	_, err = kube.Nodes(ctx)

	return err
}

// addresses of the servers; empty where one is not known.
func (s k3sServers) addresses() []string {
	var all []string
	for _, server := range s.plan.ControlPlanes() {
		all = append(all, s.known.Get(server.Name))
	}

	return all
}

// apiOf is Kubernetes by one server.
func (s k3sServers) apiOf(server string) (*kubeapi.Client, error) {
	return s.connect([]byte(s.known.Get("")), s.known.Get(server))
}

func order(later bool) int {
	if later {
		return 1
	}

	return 0
}

// share asks one of some questions, and leaves the others, and the caller, their part of the time that is left.
func share[T any](ctx context.Context, questions int, ask func(context.Context) (T, error)) (T, error) {
	bound := wait.Ask
	if end, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(end)/time.Duration(questions+1))
	}

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	return ask(ctx)
}
