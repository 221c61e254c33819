package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// WaitHealthy waits until a check holds. What has failed for three times lifecycle.settleTimeout is the error: another
// node may just be rejoining.
func WaitHealthy(ctx context.Context, p *plan.Plan, progress wait.Reporter, what string,
	check func(context.Context) error,
) error {
	grace := wait.GracePeriod{Bound: 3 * p.SettleTimeout}

	return wait.Until(ctx, p.ReadyTimeout, progress, func(context.Context) error {
		err := check(ctx)
		if err == nil || grace.Expired() {
			return err
		}

		return wait.For("%s: %v", what, err)
	})
}

// CheckWorkers checks that one more worker may be unavailable, by what Kubernetes says of the others. One that an
// operator has cordoned takes no pods either. What this program has cordoned is the limiter's business.
func CheckWorkers(p *plan.Plan, nodes []kubeapi.Node, name string) error {
	var notReady, cordoned []string

	for _, n := range p.Nodes() {
		i := slices.IndexFunc(nodes, func(found kubeapi.Node) bool { return found.Name == n.Name })

		switch {
		case n.Role == spec.RoleControlPlane || n.Name == name || i < 0:
		case !nodes[i].Ready:
			notReady = append(notReady, n.Name)
		case nodes[i].Cordoned && !nodes[i].Ours:
			cordoned = append(cordoned, n.Name)
		}
	}

	if len(notReady)+len(cordoned) < p.MaxUnavailable {
		return nil
	}

	return fmt.Errorf("%d of the workers may be unavailable (lifecycle.upgrade.maxUnavailable), and %s",
		p.MaxUnavailable, unavailableText(notReady, cordoned))
}

// unavailableText names workers that are not ready, and those that an operator has cordoned.
func unavailableText(notReady, cordoned []string) string {
	var texts []string

	if len(notReady) > 0 {
		texts = append(texts, "these are not ready: "+strings.Join(slices.Sorted(slices.Values(notReady)), ", "))
	}

	if len(cordoned) > 0 {
		texts = append(texts, "these are cordoned: "+strings.Join(slices.Sorted(slices.Values(cordoned)), ", ")+
			" (not by this program: uncordon them with kubectl, or raise the limit)")
	}

	return strings.Join(texts, ", and ")
}
