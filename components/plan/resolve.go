package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/components/spec"
)

// resolver carries the problems while a spec is resolved. Each step goes on after a problem, so that all are found.
type resolver struct {
	spec     spec.Spec
	network  netip.Prefix
	gateway  netip.Addr
	vip      netip.Addr
	apiFrom  []netip.Prefix
	openings []opening
	pools    []*pool
	static   bool                // some addresses are written into machine configuration
	taken    map[netip.Addr]bool // stated by nodes, for suggestions; nil until one is made
	offered  []interval[int]     // ranges of VMIDs that a problem has named
	problems spec.Problems
	warnings []spec.Problem
}

// pool is a pool while it is resolved.
type pool struct {
	name, path string
	spec.Pool
	// shape is what a node of the pool is that says nothing of its own.
	shape     spec.VMSpec
	members   []poolNode
	vmids     intervals[int]
	addresses intervals[netip.Addr]
	planned   PlannedPool
}

// poolNode is one node as the operator wrote it.
type poolNode struct {
	ordinal int
	path    string // of the node, or of the pool where the node has nothing of its own
	*spec.NodeSpec
	gpu *spec.GPUSpec
}

// emptyNode is what a node states that is only counted.
var emptyNode = &spec.NodeSpec{}

// shaped says whether the node states something of its shape.
func (m poolNode) shaped() bool { return m.NodeSpec != emptyNode && !m.VMSpec.IsZero() }

func (r *resolver) resolve() *Plan {
	given := r.spec
	r.spec.SetDefaults()
	r.expandPools()

	s := &r.spec
	p := &Plan{
		Environment: s.Environment, Cluster: s.Cluster.Name, Distribution: s.Cluster.Distribution,
		Bootstrap: s.Cluster.Bootstrap, Patches: s.Cluster.Patches,
		Addressing: s.Network.Addressing, Source: s.Image.Source, Platform: s.Image.Platform,
		ImageStore: s.Proxmox.Storage.Images,
		Strategy:   s.Placement.Strategy, Rebalance: s.Placement.Rebalance, Tailscale: s.Tailscale,
		TakeOver: s.Provided.MachineSecrets, Outputs: s.Outputs, Firewall: *s.Firewall.Enabled,
		BootstrapWaitsForWorkers: s.Lifecycle.BootstrapWaitsForWorkers,
	}

	if !r.checkKind(given) {
		return p // everything else depends on it
	}

	r.checkModes()
	r.checkCluster(p, given.Cluster.CNI.Name)
	r.checkNetwork(p)
	r.checkEndpoint(p)
	r.checkFirewall(p)
	r.checkServices(p)
	r.checkPlatform(p)
	r.checkAccess(p)
	r.checkEndpointPort()
	r.checkLifecycle(p)
	r.checkBackup(p)
	r.checkHosts()
	r.checkImage()
	r.checkShapes()

	for _, pool := range r.pools {
		r.checkPool(pool)
	}

	r.checkRanges()

	for _, pool := range r.pools {
		r.makeNodes(pool)
	}

	r.checkEncryption(p)

	r.checkIdentity()
	p.Hosts = r.place()

	for _, pool := range r.pools {
		pool.planned.VMIDs, pool.planned.Addresses = pool.vmids.spans(), pool.addresses.spans()
		p.Pools = append(p.Pools, pool.planned)
	}

	r.checkServiceAddresses(p)
	r.checkAddonVolumes(p)
	r.openPools(p)
	r.checkLeaving(p)

	p.Endpoint = r.endpoint(p)
	p.Steps = steps(p)
	p.Warnings = r.warnings

	return p
}

// expandPools takes the pools apart, in plan order: control planes first, then by name.
func (r *resolver) expandPools() {
	names := slices.SortedFunc(maps.Keys(r.spec.Pools), func(a, b string) int {
		if c := roleOrder(r.spec.Pools[a].Role) - roleOrder(r.spec.Pools[b].Role); c != 0 {
			return c
		}

		return strings.Compare(a, b)
	})

	for _, name := range names {
		p := &pool{name: name, path: "pools." + name, Pool: r.spec.Pools[name]}
		p.shape = spec.DefaultVM(r.spec.Cluster.Distribution).With(r.spec.Defaults).With(p.VMSpec)
		p.shape.Protection = cmp.Or(p.shape.Protection, new(protected(r.spec.Environment, p.Role)))
		p.members = r.members(p)
		p.planned = PlannedPool{Name: name, Role: p.Role, GPU: p.GPUs != nil, Tailnet: r.joinsTailnet(p), Patches: p.Patches}
		r.pools = append(r.pools, p)
	}
}

// protected says which VMs are protected without being asked for: in production, those that hold a copy of etcd.
func protected(in spec.Environment, role spec.Role) bool {
	return in == spec.EnvironmentProduction && role == spec.RoleControlPlane
}

func roleOrder(role spec.Role) int {
	if role == spec.RoleControlPlane {
		return 0
	}

	return 1
}

// members are the nodes of a pool in the order of their ordinals.
func (r *resolver) members(p *pool) []poolNode {
	var found []poolNode

	if p.Count != nil {
		if *p.Count < 0 || *p.Count > maxCount {
			r.problems.Add(p.path+".count", fmt.Sprintf("must be a number from 0 to %d", maxCount), strconv.Itoa(*p.Count),
				"correct it")

			return nil
		}

		found = make([]poolNode, *p.Count)
		for i := range found {
			found[i] = poolNode{ordinal: i + 1, path: p.path, NodeSpec: emptyNode}
		}

		return found
	}

	// In order, for what is wrong is reported in order.
	for _, key := range slices.Sorted(maps.Keys(p.Nodes)) {
		spec, path := p.Nodes[key], p.path+".nodes."+key
		found = append(found, poolNode{ordinal: r.ordinal(path, key), path: path, NodeSpec: &spec})
	}

	for _, key := range slices.Sorted(maps.Keys(p.GPUs)) {
		spec, path := p.GPUs[key], p.path+".gpus."+key
		found = append(found, poolNode{ordinal: r.ordinal(path, key), path: path, NodeSpec: &spec.NodeSpec, gpu: &spec})
	}

	slices.SortFunc(found, func(a, b poolNode) int {
		if a.ordinal != b.ordinal {
			return a.ordinal - b.ordinal
		}

		return strings.Compare(a.path, b.path)
	})

	return slices.DeleteFunc(found, func(m poolNode) bool { return m.ordinal == 0 })
}

// minTaskTimeout is the least time for a task on Proxmox VE.
const minTaskTimeout = 4 * time.Minute

// maxCount bounds the ordinals: beyond it a number is a slip, not a node.
const maxCount = 10_000

func (r *resolver) ordinal(path, key string) int {
	n, err := strconv.Atoi(key)
	if err != nil || n < 1 || n > maxCount || strconv.Itoa(n) != key {
		r.problems.Add(path, fmt.Sprintf("must be named by the node's number, from 1 to %d", maxCount), key,
			`write it like "1"; node n has the nth VMID and the nth address of the pool`)

		return 0
	}

	return n
}

func (r *resolver) checkLifecycle(p *Plan) {
	l := r.spec.Lifecycle
	p.ReadyTimeout = r.duration("lifecycle.readyTimeout", l.ReadyTimeout)
	p.NodeTimeout = r.duration("lifecycle.nodeTimeout", l.NodeTimeout)
	p.AgentTimeout = r.duration("lifecycle.agentTimeout", l.AgentTimeout)
	p.DrainTimeout = r.duration("lifecycle.drainTimeout", l.DrainTimeout)
	p.SettleTimeout = r.duration("lifecycle.settleTimeout", l.SettleTimeout)
	p.ParallelClones = r.spec.Image.Template.ParallelClones
	p.TaskTimeout = r.duration("lifecycle.taskTimeout", l.TaskTimeout)

	if p.TaskTimeout > 0 && p.TaskTimeout < minTaskTimeout {
		r.problems.Add("lifecycle.taskTimeout", "must be at least "+minTaskTimeout.String()+
			": a guest has two minutes to shut down", l.TaskTimeout, "raise it")
	}
	p.TransferTimeout = r.duration("lifecycle.backup.timeout", l.Backup.Timeout)

	if l.KubeconfigRenewal != "" {
		p.KubeconfigRenewal = r.duration("lifecycle.kubeconfigRenewal", l.KubeconfigRenewal)
	}

	// Each update would renew what has a longer window than its validity.
	if p.KubeconfigRenewal > maxRenewal {
		r.problems.Add("lifecycle.kubeconfigRenewal", "must be 8000h at most: the kubeconfig is valid for a year",
			l.KubeconfigRenewal, "lower it")
	}

	p.UpgradeTimeout = r.duration("lifecycle.upgrade.timeout", l.Upgrade.Timeout)
	p.MaxUnavailable, p.Canary = l.Upgrade.MaxUnavailable, l.Upgrade.Canary

	if p.MaxUnavailable < 1 {
		r.problems.Add("lifecycle.upgrade.maxUnavailable", "must be 1 at least", strconv.Itoa(p.MaxUnavailable),
			"state how many workers may be away at the same time")
	}

	if oneOf(r, "lifecycle.apply", l.Apply, spec.ApplyAuto, spec.ApplyStaged, spec.ApplyNoReboot) {
		p.Apply = l.Apply
	}
}

// maxRenewal leaves some weeks between two renewals of a kubeconfig.
const maxRenewal = 8000 * time.Hour

func (r *resolver) duration(path, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.problems.Add(path, "must be a time span above zero", text, "write it like 90s, 10m or 1h")
	}

	return d
}

// warn notes what does not stop the program.
func (r *resolver) warn(path, rule, value, remedy string) {
	r.warnings = append(r.warnings, spec.Problem{Path: path, Rule: rule, Value: value, Remedy: remedy})
}
