package planner

import (
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

func (r *resolver) checkCluster(p *plan.Plan, configured spec.CNIName) {
	c := r.Spec.Cluster

	switch {
	case c.Name == "":
		r.Problems.Add("cluster.name", "is required", "", "give the cluster a name, for example k3s-dev")
	case slices.Contains(sharedTags(), c.Name):
		r.Problems.Add("cluster.name", "must not be a tag that the VMs of other clusters have, too: "+
			strings.Join(sharedTags(), ", "), c.Name, "choose another name")
	case !checks.IsLabel(c.Name):
		r.Problems.Add("cluster.name", "must be a DNS label: lower case letters, digits and dashes", c.Name, "rename it")
	}

	controls, unclear := 0, false

	for _, pool := range r.pools {
		if pool.Role == spec.RoleControlPlane {
			controls += len(pool.members)
			unclear = unclear || pool.Count == nil && pool.Nodes == nil && pool.GPUs == nil
		}
	}

	switch {
	case unclear: // reported where it is
	case controls == 0:
		r.Problems.Add("pools", "need at least one control plane", "", "add a pool with role: controlplane and count: 1")
	case c.HA && (controls < 3 || controls%2 == 0):
		r.Problems.Add("cluster.ha", "needs an odd number of control planes, three at least",
			plan.Count(controls, "control plane"),
			"set the count to 3 or 5, or ha to false")
	case controls%2 == 0:
		r.Warn("pools", "an even number of control planes tolerates no more failures than one fewer",
			plan.Count(controls, "control plane"),
			"use an odd number")
	}

	r.CheckSystem(p, configured)

	if r.IsK3s() {
		for _, pool := range r.pools {
			r.checkK3sPool(pool)
		}
	}
}

// checkPlatform decides what a cluster brings to those who work on it.
func (r *resolver) checkPlatform(p *plan.Plan) {
	r.CheckCertNames(p)
	r.checkSchedulable(p)
	r.checkRegion(p)
	r.CheckPlatform(p)
}

// checkSchedulable: a cluster without workers has no other place for pods than its control planes, so they take pods
// unless the key, or a patch, says otherwise.
func (r *resolver) checkSchedulable(p *plan.Plan) {
	const path = "cluster.schedulableControlPlanes"

	workers := slices.ContainsFunc(r.pools, func(p *pool) bool { return p.Role == spec.RoleWorker && len(p.members) > 0 })
	given := r.Spec.Cluster.SchedulableControlPlanes

	switch {
	case r.IsK3s() && given != nil && !*given:
		r.Problems.Add(path, "cannot be false with K3s, whose servers take pods", "false",
			"leave it out, and give the pool of servers the taint node-role.kubernetes.io/control-plane: NoSchedule")
	case r.IsK3s() || p.Bootstrap == spec.BootstrapExternal:
	case given == nil:
		p.SchedulableControls = !workers && !r.patchesScheduling()
	case !*given && !workers:
		r.Warn(path, "leaves no node for pods: there are no workers", "false", "add a pool of workers, or leave it out")
	default:
		p.SchedulableControls = *given
	}
}

// patchesScheduling says whether a patch decides what control planes take.
func (r *resolver) patchesScheduling() bool {
	all := slices.Clone(r.Spec.Cluster.Patches)
	for _, p := range r.pools {
		all = append(all, p.Patches...)
	}

	return slices.ContainsFunc(all, func(p spec.Patch) bool {
		return strings.Contains(p.Text, "allowSchedulingOnControlPlanes")
	})
}
