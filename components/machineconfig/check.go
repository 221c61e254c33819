package machineconfig

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/blang/semver/v4"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/machineconfig/patches"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Check generates the configuration of each node with throw-away secrets, applies all patches and lets Talos validate
// the result, so that a bad patch fails here and not on the node. The warnings are Talos' own. The error is
// spec.Problems. Nodes that are not configured by the program have none; of K3s, only the manifests are checked.
func Check(p *plan.Plan) ([]spec.Problem, error) {
	switch {
	case p.Bootstrap == spec.BootstrapExternal:
		return nil, nil
	case p.Distribution == spec.DistributionK3s:
		return nil, manifests.Check(p).Err()
	}

	return (&checker{known: p}).check(p)
}

func (c *checker) check(p *plan.Plan) ([]spec.Problem, error) {
	c.problems = manifests.Check(p)

	for _, pool := range p.Pools {
		if err := c.checkPool(p, pool); err != nil {
			return nil, err
		}
	}

	// A patch that is wrong for one pool is mostly wrong for the others, in the same words.
	return c.warnings.Unique(), c.problems.Unique().Err()
}

// CheckPatches checks the patches and manifests of a configuration that cannot be planned, on the plainest node that
// their pool could have. What only shows together with the rest of the plan is left to Check.
func CheckPatches(s spec.Spec) (spec.Problems, error) {
	switch {
	case s.Cluster.Bootstrap == spec.BootstrapExternal:
		return nil, nil
	case s.Cluster.Distribution == spec.DistributionK3s:
		return manifests.Check(&plan.Plan{Manifests: s.Cluster.Manifests}), nil
	}

	p := &plan.Plan{
		Cluster: "cluster", Talos: s.Cluster.Versions.Talos, Kubernetes: "v" + constants.DefaultKubernetesVersion,
		Network: netip.MustParsePrefix("192.0.2.0/24"), Discovery: spec.DiscoveryService,
		CNI:       spec.CNIFlannel,
		KubeProxy: s.Cluster.CNI.KubeProxy == nil || *s.Cluster.CNI.KubeProxy,
		Patches:   s.Cluster.Patches, Manifests: s.Cluster.Manifests,
	}

	c := checker{standIn: true}

	if cni := s.Cluster.CNI.Name; cni == spec.CNICilium || cni == spec.CNINone {
		p.CNI = cni
	} else {
		c.unknownCNI = cni != "" && cni != spec.CNIFlannel
	}

	known := plan.Plan{EndpointMode: s.Cluster.Endpoint.Mode}

	if cidr, err := netip.ParsePrefix(s.Network.CIDR); err == nil && cidr.Bits() > 0 {
		p.Network = cidr.Masked()
		known.Network = p.Network
	}

	// Feature gates are compared with it.
	if v, err := semver.ParseTolerant(s.Cluster.Versions.Kubernetes); err == nil {
		p.Kubernetes = "v" + v.String()
		known.Kubernetes = p.Kubernetes
	}

	if _, err := talosconfig.ParseContractFromVersion(p.Talos); err != nil {
		p.Talos = talosconfig.TalosVersion1_12.String()
	} else {
		known.Talos = p.Talos
	}

	if !c.unknownCNI {
		known.CNI = p.CNI
	}

	c.known = &known

	for _, name := range slices.Sorted(maps.Keys(s.Pools)) {
		given := s.Pools[name]
		if given.Role != spec.RoleControlPlane && given.Role != spec.RoleWorker {
			continue // what holds for its nodes is not known
		}

		pool := plan.PlannedPool{Name: name, Role: given.Role, Patches: given.Patches}
		add := func(node string, own []spec.Patch) {
			pool.Nodes = append(pool.Nodes, plan.Node{
				Name: node, Pool: name, Role: given.Role, Disks: []plan.Disk{{Interface: "scsi0"}}, Patches: own,
			})
		}

		add(name, nil)

		for _, n := range slices.Sorted(maps.Keys(given.Nodes)) {
			add(name+"-"+n, given.Nodes[n].Patches)
		}

		for _, n := range slices.Sorted(maps.Keys(given.GPUs)) {
			add(name+"-"+n, given.GPUs[n].Patches)
		}

		p.Pools = append(p.Pools, pool)
	}

	var found spec.Problems

	if _, err := c.check(p); err != nil && !errors.As(err, &found) {
		return nil, err
	}

	// What is not a patch's fault is one of this plan.
	return slices.DeleteFunc(found, func(problem spec.Problem) bool {
		return problem.Path == "network.cidr" ||
			slices.ContainsFunc(p.Pools, func(pool plan.PlannedPool) bool { return problem.Path == "pools."+pool.Name })
	}), nil
}

func (c *checker) checkPool(p *plan.Plan, pool plan.PlannedPool) error {
	generated, err := generateBase(p, pool.Role)
	if err != nil {
		return fmt.Errorf("generating the configuration of pool %s: %w", pool.Name, err)
	}

	shared, err := patches.OfPool(p, pool)
	if err != nil {
		return err
	}

	tailscale, err := Tailscale(p, pool, "a-key")
	if err != nil {
		return err
	}

	if tailscale != "" {
		shared = slices.Insert(shared, 0, spec.Patch{Path: "tailscale", Origin: patches.Own, Text: tailscale})
	}

	nodes := pool.Nodes
	if len(nodes) == 0 {
		// The configuration of the pool itself, which is for machines of others.
		nodes = []plan.Node{{Name: "pool " + pool.Name, Pool: pool.Name, Role: pool.Role}}
	}

	rendered := c.applyPatches(generated, shared, nodes[0])
	planned := (&checker{}).applyPatches(generated, programPatches(shared), nodes[0])

	for _, node := range nodes {
		var mine []spec.Patch

		decided := clusterOverrides(c)

		needed := requirements(c.known)

		if len(pool.Nodes) > 0 {
			if mine, err = patches.OfNode(p, node); err != nil {
				return err
			}
		}

		if len(pool.Nodes) > 0 && !c.standIn {
			decided = slices.Concat(nodeOverrides(p, node), decided)
			needed = append(needed, sealingRequirements(p, pool, node)...)
		}

		patched, all := c.applyPatches(rendered, mine, node), slices.Concat(shared, mine)

		warnings, err := validate(patched)
		for _, fault := range faults(err) {
			refused := func(cfg talosconfig.Provider) bool {
				_, again := validate(cfg)

				return slices.Contains(faults(again), fault)
			}

			c.note(&c.problems, blame(generated, all, node, "Talos refuses the machine configuration: "+fault, refused))
		}

		for _, r := range needed {
			switch {
			case !r.broken(patched):
			case r.unpatched.Rule != "" && r.broken(generated):
				c.note(&c.problems, r.unpatched)
			default:
				c.note(&c.problems, blame(generated, all, node, r.rule, r.broken))
			}
		}

		for _, fault := range startFaults(c.known, patched) {
			c.note(&c.problems, blame(generated, all, node, fault, func(cfg talosconfig.Provider) bool {
				return slices.Contains(startFaults(c.known, cfg), fault)
			}))
		}

		for _, doubt := range startDoubts(p, node, patched) {
			c.note(&c.warnings, blame(generated, all, node, doubt, func(cfg talosconfig.Provider) bool {
				return slices.Contains(startDoubts(p, node, cfg), doubt)
			}))
		}

		c.checkAddresses(p, pool, node, generated, patched, all)
		c.checkOverrides(decided, (&checker{}).applyPatches(planned, programPatches(mine), node), patched, all, node)

		for _, w := range warnings {
			c.note(&c.warnings, spec.Problem{
				Path: "pools." + pool.Name, Rule: "Talos warns of the machine configuration: " + w,
				Value: node.Name,
			})
		}
	}

	return nil
}

// validate asks Talos' own validator. Which Kubernetes goes with which Talos, the plan knows: the validator would ask
// for the Talos of its own version.
func validate(cfg talosconfig.Provider) (warnings []string, err error) {
	return cfg.Validate(metal{}, validation.WithLocal())
}

// metal is the mode in which Talos validates on Proxmox: installed to a disk, not in a container.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }
