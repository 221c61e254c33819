package components

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// Health of a node, as Kubernetes sees it.
const (
	HealthReady    = "ready"
	HealthCordoned = "cordoned"
	HealthNotReady = "not ready"
	HealthMissing  = "missing"
	HealthUnknown  = "unknown"
)

// health asks the cluster for the health of each node, once nothing else is left to be done. A preview that does not
// ask Proxmox VE does not ask the cluster either.
func (b *k3sBuilder) health(finished pulumi.StringOutput) pulumi.StringMapOutput {
	found := finished.ApplyT(func(string) (pulumi.StringMapOutput, error) {
		if b.ctx.DryRun() && b.report == nil {
			unknown := pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) map[string]string { return nil })

			return unknown.(pulumi.StringMapOutput), nil
		}

		health, err := b.askHealth(hookutil.Interruptible(b.ctx.Context()))

		return pulumi.ToStringMap(health).ToStringMapOutput(), err
	}).(pulumi.StringMapOutput)

	return pulumi.Unsecret(found).(pulumi.StringMapOutput)
}

// askHealth does not fail without an answer: an update succeeds that has nothing to do with an unhealthy cluster.
func (b *k3sBuilder) askHealth(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*wait.Ask)
	defer cancel()

	kube, err := serversOf(b.Plan, b.servers).answering(ctx)

	var nodes []kubeapi.Node
	if err == nil {
		nodes, err = kube.Nodes(ctx)
	}

	health := map[string]string{}
	for _, n := range b.Plan.Nodes() {
		health[n.Name] = healthOf(n, nodes, err == nil)
	}

	if err != nil {
		return health, b.ctx.Log.Warn(fmt.Sprintf("the health of the nodes is not known: %v", wait.Reason(err)), nil)
	}

	return health, nil
}

func healthOf(planned plan.Node, nodes []kubeapi.Node, answered bool) string {
	at := slices.IndexFunc(nodes, func(n kubeapi.Node) bool { return n.Name == planned.Name })

	switch {
	case !answered:
		return HealthUnknown
	case at < 0:
		return HealthMissing
	case !nodes[at].Ready:
		return HealthNotReady
	case nodes[at].Cordoned:
		return HealthCordoned
	default:
		return HealthReady
	}
}
