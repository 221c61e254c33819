package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/components/spec"
)

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
		ImportSecrets: s.Provided.MachineSecrets, Outputs: s.Outputs, Firewall: *s.Firewall.Enabled,
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

	r.checkSecureBoot(p)
	r.checkEncryption(p)

	r.checkIdentity()
	p.Hosts = r.place()

	for _, pool := range r.pools {
		pool.planned.VMIDs, pool.planned.Addresses = pool.vmids.spans(), pool.addresses.spans()
		p.Pools = append(p.Pools, pool.planned)
	}

	r.checkServiceAddresses(p)
	r.checkAddonVolumes(p)
	r.checkWorkerConfiguration(p)
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

// minTaskTimeout is the least time for a task on Proxmox VE.
const minTaskTimeout = 4 * time.Minute

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

// New plans a cluster. The error holds all problems (Problems); the plan is only there without one. The parts of the
// plan belong to the caller only as long as the spec does: they share its lists and maps.
func New(spec spec.Spec) (*Plan, error) {
	r := resolver{spec: spec}

	p := r.resolve()
	if err := r.problems.Err(); err != nil {
		return nil, err
	}

	return p, nil
}
