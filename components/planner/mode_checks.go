package planner

import (
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// checkModes holds the values of the modes, and which source goes with which addressing.
func (r *resolver) checkModes() {
	s := &r.Spec
	checks.OneOf(&r.Problems, "environment", s.Environment, spec.EnvironmentLab, spec.EnvironmentProduction)
	checks.OneOf(&r.Problems, "cluster.bootstrap", s.Cluster.Bootstrap, spec.BootstrapPulumi, spec.BootstrapExternal)
	checks.OneOf(&r.Problems, "placement.strategy", s.Placement.Strategy, spec.StrategySpread, spec.StrategyPin)

	source := checks.OneOf(&r.Problems, "image.source", s.Image.Source, spec.SourceTemplate, spec.SourceISO,
		spec.SourceFactory,
		spec.SourceCloudImage)
	platform := checks.OneOf(&r.Problems, "image.platform", s.Image.Platform, spec.PlatformMetal, spec.PlatformNoCloud)
	addressing := checks.OneOf(&r.Problems, "network.addressing", s.Network.Addressing, spec.AddressingStatic,
		spec.AddressingReserved,
		spec.AddressingAgent, spec.AddressingReported)

	if source && platform && addressing {
		r.checkPair()
	}

	if s.Cluster.Bootstrap == spec.BootstrapExternal && !r.IsK3s() {
		r.checkExternal()
	}

	if s.Network.Addressing == spec.AddressingReported && s.Cluster.Bootstrap == spec.BootstrapPulumi {
		r.checkReported()
	}

	r.checkStaticNodes()
}

// checkPair refuses the pairs of source and addressing that cannot come up.
func (r *resolver) checkPair() {
	image, addressing := r.Spec.Image, r.Spec.Network.Addressing

	switch {
	case addressing == spec.AddressingStatic && image.Platform == spec.PlatformMetal &&
		image.Source == spec.SourceTemplate:
		r.Problems.Add("network.addressing",
			"a metal template cannot hold the address of each of its clones, and Talos on metal ignores "+
				"the cloud-init drive", string(addressing), "use reserved or reported, or a template with image.platform nocloud")
	case addressing == spec.AddressingStatic && image.Platform == spec.PlatformMetal && image.Source == spec.SourceISO:
		r.Problems.Add("network.addressing",
			"one metal ISO file cannot hold the address of each node, and Talos on metal ignores "+
				"the cloud-init drive", string(addressing),
			"use reserved, or image.source factory, or an ISO file with image.platform nocloud")
	case addressing == spec.AddressingReserved && image.Platform == spec.PlatformMetal &&
		image.Source == spec.SourceFactory:
		r.Warn("network.addressing", "a reservation is not needed: the factory writes the address into the image",
			string(addressing),
			"use static")
	}
}

// checkReported: who configures a node must know where it is.
func (r *resolver) checkReported() {
	for _, p := range r.pools {
		if p.Addresses != "" {
			continue
		}

		for _, m := range p.members {
			if m.Address == "" {
				r.Problems.Add(p.path+".addresses",
					`is required with addressing "reported" and bootstrap "pulumi": the nodes could not be reached`,
					"", "set the addresses that the nodes have")

				break
			}
		}
	}
}

// checkStaticNodes: an address can be written into the configuration of a node that has been reached at it, and that
// this program configures.
func (r *resolver) checkStaticNodes() {
	s := r.Spec
	check := func(path string, a spec.Addressing) {
		path += ".addressing"

		switch {
		case a == "":
		case a != spec.AddressingStatic:
			r.Problems.Add(path, `must be "static" or absent`, string(a), "leave it out")
		case s.Network.Addressing != spec.AddressingReserved:
			r.Problems.Add(path, `belongs to network.addressing "reserved"`, string(a),
				`leave it out, or change network.addressing, which is "`+string(s.Network.Addressing)+`"`)
		case s.Cluster.Bootstrap == spec.BootstrapExternal:
			r.Problems.Add(path, `is excluded by cluster.bootstrap "external": no node is configured`, string(a),
				"leave it out, or set cluster.bootstrap to pulumi")
		default:
			r.writesAddresses = true
		}
	}

	for _, p := range r.pools {
		check(p.path, p.Addressing)

		for _, m := range p.members {
			check(m.path, m.Addressing)
		}
	}
}

// checkExternal refuses what only matters to a cluster that this program configures.
func (r *resolver) checkExternal() {
	s := r.Spec
	exclude := func(path string, given bool, value string) {
		if given {
			r.Problems.Add(path, `is excluded by cluster.bootstrap "external": no node is configured`, value,
				"leave it out, or set cluster.bootstrap to pulumi")
		}
	}

	exclude("cluster.versions.kubernetes", s.Cluster.Versions.Kubernetes != "", s.Cluster.Versions.Kubernetes)
	exclude("cluster.versions.contract", s.Cluster.Versions.Contract != "", s.Cluster.Versions.Contract)
	exclude("cluster.patches", len(s.Cluster.Patches) > 0, "")
	exclude("cluster.cni", s.Cluster.CNI.Name != spec.CNIFlannel || s.Cluster.CNI.Version != "" ||
		!*s.Cluster.CNI.KubeProxy, string(s.Cluster.CNI.Name))
	exclude("cluster.discovery", s.Cluster.Discovery != spec.DiscoveryService, string(s.Cluster.Discovery))
	exclude("cluster.manifests", len(s.Cluster.Manifests) > 0, "")
	exclude("cluster.registryMirrors", len(s.Cluster.RegistryMirrors) > 0, "")
	exclude("cluster.trustedCAs", len(s.Cluster.TrustedCAs) > 0, "")
	exclude("cluster.logs", len(s.Cluster.Logs.Services)+len(s.Cluster.Logs.Kernel) > 0, "")
	exclude("cluster.encryption", s.Cluster.Encryption != "", string(s.Cluster.Encryption))
	exclude("cluster.recoverFrom", s.Cluster.RecoverFrom != "", s.Cluster.RecoverFrom)
	exclude("cluster.schedulableControlPlanes", s.Cluster.SchedulableControlPlanes != nil, "")
	exclude("cluster.region", s.Cluster.Region != "", s.Cluster.Region)
	exclude("cluster.endpoint.names", len(s.Cluster.Endpoint.Names) > 0, "")

	for _, key := range platformKeys(s) {
		exclude(key.path, key.configured, key.value)
	}

	exclude("network.timeServers", len(s.Network.TimeServers) > 0, "")
	exclude("tailscale", s.Tailscale != nil, "")
	exclude("machineSecrets", s.Provided.MachineSecrets, "")
	exclude("outputs.files", s.Outputs.Files != nil, "")
	exclude("outputs.workerConfiguration", s.Outputs.WorkerConfiguration != "", s.Outputs.WorkerConfiguration)
	exclude("lifecycle.bootstrapWaitsForWorkers", s.Lifecycle.BootstrapWaitsForWorkers, "true")
	exclude("lifecycle.replace", len(s.Lifecycle.Replace) > 0, "")
	exclude("lifecycle.forceRemove", len(s.Lifecycle.ForceRemove) > 0, "")
	exclude("lifecycle.acceptEmptyCluster", s.Lifecycle.AcceptEmptyCluster != "", s.Lifecycle.AcceptEmptyCluster)
	exclude("lifecycle.upgrade", s.Lifecycle.Upgrade != spec.Upgrade{MaxUnavailable: 1, Timeout: "15m"}, "")
	exclude("lifecycle.kubeconfigRenewal", s.Lifecycle.KubeconfigRenewal != "", s.Lifecycle.KubeconfigRenewal)
	exclude("lifecycle.apply", s.Lifecycle.Apply != spec.ApplyAuto, string(s.Lifecycle.Apply))

	excludeLabels := func(path string, v spec.VMSpec) {
		exclude(path+".labels", len(v.Labels) > 0, "")
		exclude(path+".taints", len(v.Taints) > 0, "")
		exclude(path+".annotations", len(v.Annotations) > 0, "")
	}

	excludeLabels("defaults", s.Defaults)

	for _, p := range r.pools {
		exclude(p.path+".patches", len(p.Patches) > 0, "")
		excludeLabels(p.path, p.VMSpec)

		for _, m := range p.members {
			if m.path != p.path {
				exclude(m.path+".patches", len(m.Patches) > 0, "")
				excludeLabels(m.path, m.VMSpec)
			}
		}
	}

	if mode := s.Cluster.Endpoint.Mode; mode != spec.EndpointFirstControlPlane {
		r.Warn("cluster.endpoint.mode", "has no effect with bootstrap external: the tool that configures the nodes "+
			"must set it up",
			string(mode), "")
	}
}

// checkAgent: an address can be read from the guest agent only where there is one.
func (r *resolver) checkAgent(p *pool, image plan.BootImage) {
	// The agent of K3s nodes is installed when they boot.
	if r.Spec.Network.Addressing != spec.AddressingAgent || r.IsK3s() || len(p.members) == 0 ||
		slices.Contains(image.Extensions, plan.GuestAgent) {
		return
	}

	path := "image.schematic"

	switch {
	case r.Spec.Image.Source == spec.SourceFactory:
		path = "image.factory.extensions"
	case p.Image.Schematic != nil:
		path = p.path + ".image.schematic"
	}

	value := strings.Join(image.Extensions, ", ")
	remedy := "add " + plan.GuestAgent + ", which must be in the image, or choose another network.addressing"

	if image.SchematicID != "" {
		value = image.SchematicID
		remedy = "list the extensions instead of an id, whose content is not known"
	}

	r.Problems.Add(path, `must hold `+plan.GuestAgent+`: network.addressing is "agent"`, value, remedy)
}

// platformKeys are the keys of what a cluster brings to its users, which a cluster that others bootstrap does not have.
func platformKeys(s spec.Spec) []specKey {
	c := s.Cluster

	return []specKey{
		{"secretManifests", s.Provided.SecretManifests, ""},
		{"registryLogins", s.Provided.RegistryLogins, ""},
		{"backupPassphrase", s.Provided.BackupPassphrase, ""},
		{"lifecycle.backup.recipients", len(s.Lifecycle.Backup.Recipients) > 0, ""},
		{"csiToken", s.Provided.CSIToken, ""},
		{"ccmToken", s.Provided.CCMToken, ""},
		{"gitOpsKey", s.Provided.GitOpsKey, ""},
		{"ageKey", s.Provided.AgeKey, ""},
		{"cluster.gitOps", c.GitOps != nil, ""},
		{"cluster.addons", len(c.Addons) > 0, ""},
		{"cluster.manifestMirror", c.ManifestMirror != "", c.ManifestMirror},
		{"cluster.registryOptions", len(c.RegistryOptions) > 0, ""},
		{"cluster.proxy", c.Proxy != nil, ""},
		{"cluster.cni.loadBalancer", c.CNI.LoadBalancer != nil, ""},
		{"cluster.apiServer.oidc", c.APIServer.OIDC != nil, ""},
		{"cluster.apiServer.authentication", c.APIServer.Authentication != nil, ""},
		{"cluster.apiServer.audit", c.APIServer.Audit != nil, ""},
		{"cluster.apiServer.admission", len(c.APIServer.Admission) > 0, ""},
	}
}
