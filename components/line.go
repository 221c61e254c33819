package components

import (
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// line is in which order workers change where some are made anew: so many at a time. It is made of dependencies, for who waits in a
// hook for one that is made anew waits for steps that the engine has not begun yet, and will not begin while all it does at a time is
// wait.
type line struct {
	places int
	// whole are the last resources of those that have been registered.
	whole []pulumi.Resource
}

// newLine is that of a plan; nil where no worker is made anew: then nobody waits for more than what is under way.
func newLine(p *plan.Plan) *line {
	return lineOf(p, plan.Worker, max(p.MaxUnavailable, 1))
}

// newServerLine is that of servers of K3s, which go one by one: nothing restarts one while another is made anew.
func newServerLine(p *plan.Plan) *line { return lineOf(p, plan.ControlPlane, 1) }

func lineOf(p *plan.Plan, role plan.Role, places int) *line {
	for _, n := range p.Nodes() {
		if (n.Role == plan.ControlPlane) == (role == plan.ControlPlane) && slices.Contains(p.Replace, n.Name) {
			return &line{places: places}
		}
	}

	return nil
}

// before is what the next must wait for.
func (l *line) before() []pulumi.Resource {
	if l == nil || len(l.whole) < l.places {
		return nil
	}

	return []pulumi.Resource{l.whole[len(l.whole)-l.places]}
}

// enter notes the last resource of one.
func (l *line) enter(last pulumi.Resource) {
	if l != nil {
		l.whole = append(l.whole, last)
	}
}
