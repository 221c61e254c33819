package components

import (
	"cmp"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// replacementOrder chains workers with DependsOn so that at most maxUnavailable are replaced at once. A hook must not
// wait for a replacement: blocked hooks use up the engine's parallel slots. Nodes that are changed in place wait for
// each other in rollout.Limiter.
type replacementOrder struct {
	parallel int
	// registered are the last resources of nodes, in order.
	registered []pulumi.Resource
}

// newReplacementOrder is the order of workers; nil where no worker is replaced.
func newReplacementOrder(p *plan.Plan) *replacementOrder {
	return replacementOrderOf(p, spec.RoleWorker, max(p.MaxUnavailable, 1))
}

// newServerReplacementOrder is the order of K3s servers, one at a time: none is restarted while another is replaced.
func newServerReplacementOrder(p *plan.Plan) *replacementOrder {
	return replacementOrderOf(p, spec.RoleControlPlane, 1)
}

func replacementOrderOf(p *plan.Plan, role spec.Role, places int) *replacementOrder {
	for _, n := range p.Nodes() {
		if (n.Role == spec.RoleControlPlane) == (role == spec.RoleControlPlane) && p.Replaces(n.Name) {
			return &replacementOrder{parallel: places}
		}
	}

	return nil
}

// next is what the next node must wait for.
func (o *replacementOrder) next() []pulumi.Resource {
	if o == nil || len(o.registered) < o.parallel {
		return nil
	}

	return []pulumi.Resource{o.registered[len(o.registered)-o.parallel]}
}

// add enters the last resource of a node.
func (o *replacementOrder) add(last pulumi.Resource) {
	if o != nil {
		o.registered = append(o.registered, last)
	}
}

// replacedFirst are pools in the order in which their nodes are registered where nodes wait for each other: those that
// are replaced come first. A dead one counts as unavailable until then, and no other would get its turn.
func replacedFirst(p *plan.Plan, pools []plan.PlannedPool) []plan.PlannedPool {
	rank := func(nodes ...plan.Node) int {
		if slices.ContainsFunc(nodes, func(n plan.Node) bool { return p.Replaces(n.Name) }) {
			return 0
		}

		return 1
	}
	sorted := slices.Clone(pools)

	for i := range sorted {
		sorted[i].Nodes = slices.Clone(sorted[i].Nodes)
		slices.SortStableFunc(sorted[i].Nodes, func(a, b plan.Node) int { return cmp.Compare(rank(a), rank(b)) })
	}

	slices.SortStableFunc(sorted, func(a,
		b plan.PlannedPool,
	) int {
		return cmp.Compare(rank(a.Nodes...), rank(b.Nodes...))
	})

	return sorted
}

// inPlanOrder puts nodes into the order of the plan.
func inPlanOrder[N any](p *plan.Plan, nodes []N, name func(N) string) {
	position := map[string]int{}
	for i, n := range p.Nodes() {
		position[n.Name] = i
	}

	slices.SortFunc(nodes, func(a, b N) int { return position[name(a)] - position[name(b)] })
}

// creationOrder has workers wait for control planes before their VMs may change. What they depend on is the same from
// their creation on, when there is nothing to wait for: the engine writes the whole state for each resource whose
// dependencies are not those of the last time.
type creationOrder struct {
	// exists says that the cluster exists.
	exists bool
	// controlPlanes stands for what is done before.
	controlPlanes pulumi.Resource
}

func newCreationOrder(ctx *pulumi.Context, name string, p *plan.Plan, report *preflight.Report,
	before []pulumi.Resource,
	opts ...pulumi.ResourceOption,
) (*creationOrder, error) {
	there := slices.ContainsFunc(p.Nodes(), report.Exists)
	if there {
		opts = append(opts, pulumi.DependsOn(before))
	}

	first, err := pulumi.NewStash(ctx, name+tokens.CreationOrderSuffix,
		&pulumi.StashArgs{Input: pulumi.String("control planes before workers")}, opts...)

	return &creationOrder{there, first}, err
}

// dependencies are those of the VM of a worker. One that joins an existing cluster is created at once.
func (o *creationOrder) dependencies(has bool) []pulumi.Resource {
	if o == nil || o.exists && !has {
		return nil
	}

	return []pulumi.Resource{o.controlPlanes}
}
