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

// CheckWorkers checks that one more worker may be unavailable, by what Kubernetes says of the others.
func CheckWorkers(p *plan.Plan, nodes []kubeapi.Node, name string) error {
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.Name] = n.Ready
	}

	var unavailable []string

	for _, n := range p.Nodes() {
		if isReady, known := ready[n.Name]; n.Role != spec.RoleControlPlane && n.Name != name && known && !isReady {
			unavailable = append(unavailable, n.Name)
		}
	}

	if len(unavailable) < p.MaxUnavailable {
		return nil
	}

	return fmt.Errorf("%d of the workers may be unavailable (lifecycle.upgrade.maxUnavailable), and these are not "+
		"ready: %s",
		p.MaxUnavailable, strings.Join(slices.Sorted(slices.Values(unavailable)), ", "))
}
