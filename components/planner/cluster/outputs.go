package cluster

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// CheckWorkerConfiguration checks that the configuration of a pool is good for other machines: it names no image of one
// node.
func (r *Resolver) CheckWorkerConfiguration(p *plan.Plan) {
	const path = "outputs.workerConfiguration"

	name := r.Spec.Outputs.WorkerConfiguration
	if name == "" {
		return
	}

	at := slices.IndexFunc(p.Pools, func(pool plan.PlannedPool) bool {
		return pool.Name == name && pool.Role == spec.RoleWorker
	})

	switch {
	case at < 0:
		r.Problems.Add(path, "must be a pool of workers", name, "name one of pools; it may have the count 0")
	case p.Pools[at].Image.Scope == plan.PerNode:
		r.Problems.Add(path, "cannot be used by other machines: each node of the pool installs an image with its "+
			"own address",
			name, "name a pool with another image, or set image.platform to nocloud")
	}
}

func (r *Resolver) checkOutputs(p *plan.Plan) {
	if r.Spec.Outputs.Files == nil {
		return
	}

	f := *r.Spec.Outputs.Files
	f.Dir = cmp.Or(f.Dir, "./talos")
	p.Outputs.Files = &f

	if clean := path.Clean(f.Dir); path.IsAbs(f.Dir) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
		r.Problems.Add("outputs.files.dir", "must be a directory inside the project", f.Dir, "write it like ./talos")
	}

	if len(f.Write) == 0 {
		r.Problems.Add("outputs.files.write", "is required: it lists the files to write", "",
			"name them, for example [talosconfig, kubeconfig]")
	}

	for i, name := range f.Write {
		checks.OneOf(&r.Problems, checks.At("outputs.files.write", i), name, "talosconfig", "kubeconfig",
			"control-plane.yaml", "worker.yaml",
			"secrets.yaml")

		if name == "worker.yaml" && !r.hasWorkers() {
			r.Problems.Add(checks.At("outputs.files.write", i), "needs a pool of workers", string(name), "leave it out")
		}
	}
}

// hasWorkers says whether there is a pool of workers, with nodes or not.
func (r *Resolver) hasWorkers() bool {
	for _, p := range r.Spec.Pools {
		if p.Role == spec.RoleWorker {
			return true
		}
	}

	return false
}
