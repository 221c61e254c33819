package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
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

// WaitRemovable waits until etcd can do without a member for good. Members on their way into etcd are waited for. Any
// other reason why it cannot is the error once it has lasted for lifecycle.settleTimeout.
func WaitRemovable(
	ctx context.Context,
	p *plan.Plan,
	progress wait.Reporter,
	ask func() (d etcd.MemberRemoval, joining string, err error),
) error {
	grace := wait.GracePeriod{Bound: p.SettleTimeout}

	return wait.Until(ctx, p.ReadyTimeout, progress, func(context.Context) error {
		// Each member may take its time to answer.
		d, joining, err := ask()
		if err == nil {
			if joining != "" {
				grace.Reset()

				return wait.For("%s", joining)
			}

			if err := d.CheckQuorum(); err != nil {
				return err
			}

			err = d.Evaluate()
		}

		if err == nil || grace.Expired() {
			return err
		}

		return wait.For("etcd: %v", err)
	})
}

// WaitKubernetes waits for a control plane that answers.
func WaitKubernetes(
	ctx context.Context, p *plan.Plan, progress wait.Reporter, connect func(context.Context) (*kubeapi.Client, error),
) (kube *kubeapi.Client, err error) {
	err = wait.Until(ctx, p.ReadyTimeout, progress, func(context.Context) (err error) {
		if kube, err = connect(ctx); err != nil {
			return wait.For("%v", err)
		}

		return nil
	})

	return kube, err
}

// CheckWorkers holds that one more worker may be unavailable, by what Kubernetes says of the others.
func CheckWorkers(p *plan.Plan, nodes []kubeapi.Node, name string) error {
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.Name] = n.Ready
	}

	var away []string

	for _, n := range p.Nodes() {
		if is, there := ready[n.Name]; n.Role != spec.RoleControlPlane && n.Name != name && there && !is {
			away = append(away, n.Name)
		}
	}

	if len(away) < p.MaxUnavailable {
		return nil
	}

	return fmt.Errorf("%d of the workers may be unavailable (lifecycle.upgrade.maxUnavailable), and these are not "+
		"ready: %s",
		p.MaxUnavailable, strings.Join(slices.Sorted(slices.Values(away)), ", "))
}

// Unreachable is a control plane whose Kubernetes API does not answer, and why.
type Unreachable struct {
	Name string
	Why  error
}

// NoneReachable is the error of asking them all.
func NoneReachable(all []Unreachable) error {
	var reasons []string
	for _, u := range all {
		reasons = append(reasons, fmt.Sprintf("%s: %v", u.Name, u.Why))
	}

	return fmt.Errorf("no Kubernetes API answers (%s)", strings.Join(reasons, "; "))
}

// ToDestroy are the two steps that take a whole cluster away.
const ToDestroy = "to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', " +
	"then 'pulumi destroy'"

// RefuseRemoval is why the machine of a node that stays is not taken away: the cluster is being destroyed, or something
// else wants a new VM.
func RefuseRemoval(name string) error {
	return fmt.Errorf("%s is in the configuration, so its machine is not removed; to recreate it, name it in "+
		"lifecycle.replace; %s", name, ToDestroy)
}

// SuggestForce adds to why a step of a removal has failed how the node is removed nevertheless.
func SuggestForce(failed error) error {
	return fmt.Errorf(
		"%w; if the node is broken, name it in lifecycle.forceRemove to remove it without this step", failed)
}

// PreviewRemoval evaluates a removal by the members of etcd as they are now. Too few members are an error. What is
// unhealthy now may be healthy when the node is removed, so that is a warning.
func PreviewRemoval(name string, d etcd.MemberRemoval, warn func(string)) error {
	if err := d.CheckQuorum(); err != nil {
		return fmt.Errorf("%s is not removed: %w", name, err)
	}

	if err := d.Evaluate(); err != nil {
		warn(fmt.Sprintf("in the current state of etcd, %s would not be removed: %v", name, err))
	}

	return nil
}
