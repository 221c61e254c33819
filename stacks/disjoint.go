package stacks

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"weak"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// ofCluster names the cluster in the paths of problems, where a program has several.
func ofCluster(config Config, clusters int, found spec.Problems) spec.Problems {
	if clusters > 1 {
		found = slices.Clone(found)
		for i := range found {
			found[i].Path = "cluster " + config.Cluster.Name + ": " + found[i].Path
		}
	}

	return found
}

// planned is a cluster of a program.
type planned struct {
	config Config
	plan   *plan.Plan
}

// programs are the clusters of each program, for one that calls Deploy several times. Keys are weak pointers to the
// program's context, or what WithProgram names.
var programs = struct {
	sync.Mutex

	clusters map[any][]planned
}{clusters: map[any][]planned{}}

type programKey struct{}

// WithProgram returns a context that belongs to the program with an id, for a component package: each of its components
// has a context of its own.
func WithProgram(ctx *pulumi.Context, id string) *pulumi.Context {
	return ctx.WithValue(programKey{}, id)
}

// programOf returns the key of a program in programs.
func programOf(ctx *pulumi.Context) any {
	if id := ctx.Value(programKey{}); id != nil {
		return id
	}

	program := weak.Make(ctx)

	if programs.clusters[program] == nil {
		runtime.AddCleanup(ctx, func(ended weak.Pointer[pulumi.Context]) {
			programs.Lock()
			defer programs.Unlock()

			delete(programs.clusters, ended)
		}, program)
	}

	return program
}

// addClusters adds clusters to those of a program, unless they share something that they must not.
func addClusters(ctx *pulumi.Context, more []planned) error {
	programs.Lock()
	defer programs.Unlock()

	program := programOf(ctx)

	all := slices.Concat(programs.clusters[program], more)
	if err := checkDisjoint(all).Err(); err != nil {
		return err
	}

	programs.clusters[program] = all

	return nil
}

// checkDisjoint refuses what clusters of one program share and must not. Proxmox VE cannot show it: none of them may
// exist yet.
func checkDisjoint(clusters []planned) spec.Problems {
	var problems spec.Problems

	owners, reported := map[string]string{}, map[string]bool{}
	claim := func(path, rule, value, owner string) {
		other, taken := owners[rule+value]

		switch {
		case !taken:
			owners[rule+value] = owner
		case !reported[path]:
			reported[path] = true

			problems.Add(path, "clashes with cluster "+other+" of this program", value, "choose another one for either")
		}
	}

	for _, c := range clusters {
		p := c.plan
		path := "cluster " + p.Cluster + ": "
		claim(path+"cluster.name", "name", p.Cluster, p.Cluster)

		for _, n := range p.Nodes() {
			pool := path + "pools." + n.Pool
			claim(pool+".vmids", c.config.Proxmox.Endpoint+" VMID ", strconv.Itoa(n.VMID), p.Cluster)

			for _, nic := range n.NICs {
				claim(pool+".mac", c.config.Proxmox.Endpoint+" MAC ", nic.MAC, p.Cluster)
			}

			if n.Address.IsValid() {
				claim(pool+".addresses", c.config.Proxmox.Endpoint+" address ", n.Address.String(), p.Cluster)
			}
		}

		if p.VIP.IsValid() {
			claim(path+"cluster.endpoint.address", c.config.Proxmox.Endpoint+" address ", p.VIP.String(), p.Cluster)
		}
	}

	return problems
}
