package components

import (
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
)

// precedence has workers wait for what must be done before their VMs may change. What they depend on is the same from their creation on, when
// there is nothing to wait for: the engine writes the whole state for each resource whose dependencies are not those of the last time.
type precedence struct {
	// there says that the cluster is.
	there bool
	// first stands for what is done before.
	first pulumi.Resource
}

func newPrecedence(ctx *pulumi.Context, name string, p *plan.Plan, report *preflight.Report, before []pulumi.Resource,
	opts ...pulumi.ResourceOption) (*precedence, error) {
	there := slices.ContainsFunc(p.Nodes(), report.Exists)
	if there {
		opts = append(opts, pulumi.DependsOn(before))
	}

	first, err := pulumi.NewStash(ctx, name+"-precedence", &pulumi.StashArgs{Input: pulumi.String("control planes before workers")}, opts...)

	return &precedence{there, first}, err
}

// of is what the VM of a worker depends on. One that joins a cluster that is there is made at once.
func (p *precedence) of(has bool) []pulumi.Resource {
	if p == nil || p.there && !has {
		return nil
	}

	return []pulumi.Resource{p.first}
}
