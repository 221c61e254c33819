// Package planner turns what the operator asks for into every decision the program needs, a plan.Plan: names, hosts,
// VMIDs, MACs, addresses, VM specs, images, the endpoint. It is pure: the same Spec gives the same Plan, and growing a
// pool changes nothing that exists. It knows neither Pulumi nor any server.
package planner

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

func (r *resolver) resolve() *plan.Plan {
	given := r.Spec
	r.Spec.SetDefaults()
	r.expandPools()

	s := &r.Spec
	p := &plan.Plan{
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
	r.CheckEndpoint(p)
	r.vip = p.VIP
	r.checkFirewall(p)
	r.CheckServices(p)
	r.checkPlatform(p)
	r.CheckAccess(p)
	r.CheckEndpointPort()
	r.checkLifecycle(p)
	r.CheckBackup(p)
	r.checkHosts()
	r.checkImage()
	r.checkKubeVIPLink()
	r.checkVMSpecs()

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
		pool.planned.VMIDs, pool.planned.Addresses = pool.vmids.Spans(), pool.addresses.Spans()
		p.Pools = append(p.Pools, pool.planned)
	}

	r.CheckServiceAddresses(p)
	r.checkK3sAddresses(p)
	r.checkCiliumPools(p)
	r.CheckAddonVolumes(p)
	r.CheckWorkerConfiguration(p)
	r.openPools(p)
	r.ResolveRemovals(p)

	p.Endpoint = r.Endpoint(p)
	p.Steps = plan.StepsOf(p)
	p.Warnings = r.Warnings

	return p
}

// expandPools takes the pools apart, in plan order: control planes first, then by name.
func (r *resolver) expandPools() {
	names := slices.SortedFunc(maps.Keys(r.Spec.Pools), func(a, b string) int {
		if c := roleOrder(r.Spec.Pools[a].Role) - roleOrder(r.Spec.Pools[b].Role); c != 0 {
			return c
		}

		return strings.Compare(a, b)
	})

	for _, name := range names {
		p := &pool{name: name, path: "pools." + name, Pool: r.Spec.Pools[name]}
		p.vmDefaults = spec.DefaultVM(r.Spec.Cluster.Distribution).With(r.Spec.Defaults).With(p.VMSpec)
		p.vmDefaults.Protection = cmp.Or(p.vmDefaults.Protection, new(protected(r.Spec.Environment, p.Role)))
		p.members = r.members(p)
		p.planned = plan.PlannedPool{
			Name: name, Role: p.Role, GPU: p.GPUs != nil, Tailnet: r.JoinsTailnet(name), Patches: p.Patches,
		}
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

func (r *resolver) checkLifecycle(p *plan.Plan) {
	l := r.Spec.Lifecycle
	p.ReadyTimeout = r.Duration("lifecycle.readyTimeout", l.ReadyTimeout)
	p.NodeTimeout = r.Duration("lifecycle.nodeTimeout", l.NodeTimeout)
	p.AgentTimeout = r.Duration("lifecycle.agentTimeout", l.AgentTimeout)
	p.DrainTimeout = r.Duration("lifecycle.drainTimeout", l.DrainTimeout)
	p.SettleTimeout = r.Duration("lifecycle.settleTimeout", l.SettleTimeout)
	p.ParallelClones = r.Spec.Image.Template.ParallelClones
	p.TaskTimeout = r.Duration("lifecycle.taskTimeout", l.TaskTimeout)

	if p.TaskTimeout > 0 && p.TaskTimeout < minTaskTimeout {
		r.Problems.Add("lifecycle.taskTimeout", "must be at least "+minTaskTimeout.String()+
			": a guest has two minutes to shut down", l.TaskTimeout, "raise it")
	}
	p.TransferTimeout = r.Duration("lifecycle.backup.timeout", l.Backup.Timeout)

	if l.KubeconfigRenewal != "" {
		p.KubeconfigRenewal = r.Duration("lifecycle.kubeconfigRenewal", l.KubeconfigRenewal)
	}

	// Each update would renew what has a longer window than its validity.
	if p.KubeconfigRenewal > maxRenewal {
		r.Problems.Add("lifecycle.kubeconfigRenewal", "must be 8000h at most: the kubeconfig is valid for a year",
			l.KubeconfigRenewal, "lower it")
	}

	p.UpgradeTimeout = r.Duration("lifecycle.upgrade.timeout", l.Upgrade.Timeout)
	p.MaxUnavailable, p.Canary = l.Upgrade.MaxUnavailable, l.Upgrade.Canary

	if p.MaxUnavailable < 1 {
		r.Problems.Add("lifecycle.upgrade.maxUnavailable", "must be 1 at least", strconv.Itoa(p.MaxUnavailable),
			"set how many workers may be unavailable at the same time")
	}

	if checks.OneOf(&r.Problems, "lifecycle.apply", l.Apply, spec.ApplyAuto, spec.ApplyStaged, spec.ApplyNoReboot) {
		p.Apply = l.Apply
	}
}

// maxRenewal leaves some weeks between two renewals of a kubeconfig.
const maxRenewal = 8000 * time.Hour

// Plan plans a cluster. The error holds all problems (Problems); the plan is only there without one. The parts of the
// plan belong to the caller only as long as the spec does: they share its lists and maps.
func Plan(spec spec.Spec) (*plan.Plan, error) {
	var r resolver
	r.Spec = spec

	p := r.resolve()
	if err := r.Problems.Err(); err != nil {
		return nil, err
	}

	return p, nil
}
