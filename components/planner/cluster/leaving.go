package cluster

import (
	"slices"
	"strings"

	"talos-proxmox/components/plan"
)

// CheckLeaving holds what is said of nodes that go: for good, or to be recreated.
func (r *Resolver) CheckLeaving(p *plan.Plan) {
	l := r.Spec.Lifecycle
	p.Replace, p.ForceRemove, p.Teardown = l.Replace, l.ForceRemove, l.Teardown

	if l.AcceptEmptyCluster != "" && l.AcceptEmptyCluster != p.Cluster {
		r.Problems.Add("lifecycle.acceptEmptyCluster", "must be the name of the cluster, "+p.Cluster, l.AcceptEmptyCluster,
			"set it to that name, or leave the key out")
	}

	if l.AcceptEmptyCluster != "" && r.Spec.Cluster.RecoverFrom != "" {
		r.Problems.Add("lifecycle.acceptEmptyCluster", "cannot be combined with cluster.recoverFrom: etcd starts "+
			"either from a snapshot or empty",
			l.AcceptEmptyCluster,
			"leave one of them out")
	}

	p.AcceptEmpty = l.AcceptEmptyCluster != ""

	if l.Teardown && len(l.Replace)+len(l.ForceRemove) > 0 {
		r.Problems.Add("lifecycle.teardown", "cannot be combined with replace and forceRemove: it removes every node",
			strings.Join(slices.Concat(l.Replace, l.ForceRemove), " "),
			"leave them out, or set teardown to false")
	}

	named := map[string]bool{}

	for _, n := range p.Nodes() {
		named[n.Name] = true

		if n.Protection && p.Replaces(n.Name) {
			r.Problems.Add("lifecycle.replace", "names a node whose VM is protected", n.Name,
				"set protection to false for its pool, and run 'pulumi up' before")
		}
	}

	for _, name := range l.Replace {
		if !named[name] {
			r.Problems.Add("lifecycle.replace", "names no node", name,
				"use the name that the plan gives the node, or remove it")
		}
	}

	for _, name := range l.ForceRemove {
		// One that is not named has left the configuration, which is what the key is for.
		if named[name] && !p.Replaces(name) {
			r.Warn("lifecycle.forceRemove", "has no effect on a node that stays", name,
				"take it out of its pool to remove it, or name it in lifecycle.replace to recreate it")
		}
	}
}
