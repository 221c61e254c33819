package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/kubeapi"
)

// Unreachable is a control plane whose Kubernetes API does not answer, and why.
type Unreachable struct {
	Name string
	Why  error
}

// NoneReachable is the error of asking them all.
func NoneReachable(unreachable []Unreachable) error {
	var reasons []string
	for _, u := range unreachable {
		reasons = append(reasons, fmt.Sprintf("%s: %v", u.Name, u.Why))
	}

	return fmt.Errorf("no Kubernetes API answers (%s)", strings.Join(reasons, "; "))
}

// JoinedBy tells the node whose machine has an SMBIOS UUID, as Kubernetes has it; empty: there is none.
func JoinedBy(
	kubernetes func(ctx context.Context) (*kubeapi.Client, error),
) func(ctx context.Context, uuid string) (string, error) {
	return func(ctx context.Context, uuid string) (string, error) {
		kube, err := kubernetes(ctx)
		if err != nil {
			return "", err
		}

		nodes, err := kube.Nodes(ctx)

		at := slices.IndexFunc(nodes, func(n kubeapi.Node) bool { return strings.EqualFold(n.Machine, uuid) })
		if err != nil || at < 0 {
			return "", err
		}

		return nodes[at].Name, nil
	}
}
