package plan

import (
	"slices"
	"strings"
)

// checkLeaving holds what is said of nodes that go: for good, or to be recreated.
func (r *resolver) checkLeaving(p *Plan) {
	l := r.spec.Lifecycle
	p.Replace, p.ForceRemove, p.Teardown = l.Replace, l.ForceRemove, l.Teardown

	if l.AcceptEmptyCluster != "" && l.AcceptEmptyCluster != p.Cluster {
		r.problems.Add("lifecycle.acceptEmptyCluster", "must be the name of the cluster, "+p.Cluster, l.AcceptEmptyCluster,
			"state it, or leave the key out")
	}

	if l.AcceptEmptyCluster != "" && r.spec.Cluster.RecoverFrom != "" {
		r.problems.Add("lifecycle.acceptEmptyCluster", "excludes cluster.recoverFrom: etcd begins with a snapshot or empty",
			l.AcceptEmptyCluster,
			"leave one of them out")
	}

	p.AcceptEmpty = l.AcceptEmptyCluster != ""

	if l.Teardown && len(l.Replace)+len(l.ForceRemove) > 0 {
		r.problems.Add("lifecycle.teardown", "excludes replace and forceRemove: it lets go of every node",
			strings.Join(slices.Concat(l.Replace, l.ForceRemove), " "),
			"leave them out, or set teardown to false")
	}

	named := map[string]bool{}

	for _, n := range p.Nodes() {
		named[n.Name] = true

		if n.Protection && slices.Contains(l.Replace, n.Name) {
			r.problems.Add("lifecycle.replace", "names a node whose VM is protected", n.Name,
				"set protection to false for its pool, and run 'pulumi up' before")
		}
	}

	for _, name := range l.Replace {
		if !named[name] {
			r.problems.Add("lifecycle.replace", "names no node", name,
				"state the name that the plan gives the node, or take it out")
		}
	}

	for _, name := range l.ForceRemove {
		// One that is not named has left the configuration, which is what the key is for.
		if named[name] && !slices.Contains(l.Replace, name) {
			r.warn("lifecycle.forceRemove", "has no effect on a node that stays", name,
				"take it out of its pool to remove it, or name it in lifecycle.replace to recreate it")
		}
	}
}
