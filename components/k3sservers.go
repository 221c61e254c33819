package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// k3sServers speak for a cluster of K3s.
type k3sServers struct {
	plan *plan.Plan
	// known are addresses by node name, and the kubeconfig by no name.
	known *roster
	// connect is kubeapi.New.
	connect func(kubeconfig []byte, address string) (*kubeapi.Client, error)
}

// api is Kubernetes by the first of the servers whose address is known and that answers. One of them is asked last: it is the
// one that something happens to.
func (s k3sServers) api(ctx context.Context, last string) (*kubeapi.Client, error) {
	servers := slices.Clone(s.plan.ControlPlanes())
	slices.SortStableFunc(servers, func(a, b plan.Node) int { return order(a.Name == last) - order(b.Name == last) })

	return s.first(ctx, servers)
}

// first is Kubernetes by the first of some servers.
func (s k3sServers) first(ctx context.Context, servers []plan.Node) (*kubeapi.Client, error) {
	var silent []string

	for _, server := range servers {
		if s.known.of(server.Name) == "" {
			continue
		}

		kube, err := s.apiOf(server.Name)
		if err != nil {
			return nil, err
		}

		if _, err = kube.Nodes(ctx); err == nil {
			return kube, nil
		}

		silent = append(silent, fmt.Sprintf("the Kubernetes API of %s (%v)", server.Name, wait.Reason(err)))
	}

	if len(silent) == 0 {
		return nil, errors.New("the address of a server")
	}

	return nil, errors.New(strings.Join(silent, "; "))
}

// apiOf is Kubernetes by one server.
func (s k3sServers) apiOf(server string) (*kubeapi.Client, error) {
	return s.connect([]byte(s.known.of("")), s.known.of(server))
}

func order(later bool) int {
	if later {
		return 1
	}

	return 0
}
