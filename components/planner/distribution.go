package planner

import (
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// checkK3sPool holds what K3s says that a machine needs (K3s: Requirements), and what would not be carried out.
func (r *resolver) checkK3sPool(p *pool) {
	check := func(path string, s spec.VMSpec) {
		if p.Role == spec.RoleControlPlane && *s.MemoryMiB < 2048 {
			r.Problems.Add(path+".memoryMiB", "must be at least 2048: a server of K3s needs it", format(s.MemoryMiB), "raise it")
		}

		for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
			if strings.HasPrefix(key, "talos-proxmox/") {
				r.Problems.Add(path+".annotations."+key, "is set by the program itself", s.Annotations[key],
					"leave it out")
			}
		}
	}

	check(p.path, p.vmDefaults)

	for _, m := range p.members {
		if m.statesVM() {
			check(m.path, p.vmDefaults.With(m.VMSpec))
		}
	}
}

// checkKind refuses what belongs to the other kind, and says whether there is such a kind. The spec is as it was given,
// without defaults.
func (r *resolver) checkKind(given spec.Spec) bool {
	switch {
	case !checks.OneOf(&r.Problems, "cluster.kind", r.Spec.Cluster.Distribution, spec.DistributionTalos,
		spec.DistributionK3s):
		return false
	case r.IsK3s():
		r.refuse(spec.DistributionK3s, talosOnly(given))
		r.checkK3sModes()
	default:
		r.refuse(spec.DistributionTalos, k3sOnly(given))
	}

	return true
}

func (r *resolver) refuse(kind spec.Distribution, keys []specKey) {
	other := spec.DistributionTalos
	if kind == spec.DistributionTalos {
		other = spec.DistributionK3s
	}

	for _, k := range keys {
		if k.configured {
			r.Problems.Add(k.path, `belongs to cluster.kind "`+string(other)+`"`, k.value,
				`leave it out, or change cluster.kind, which is "`+string(kind)+`"`)
		}
	}
}

func k3sOnly(s spec.Spec) []specKey {
	return []specKey{
		{"k3s", s.K3s != nil, ""},
		{"cluster.versions.k3s", s.Cluster.Versions.K3s != "", s.Cluster.Versions.K3s},
		{"image.source", s.Image.Source == spec.SourceCloudImage, string(s.Image.Source)},
		{"image.cloudImage", s.Image.CloudImage != spec.CloudImage{}, ""},
		{"proxmox.storage.snippets", s.Proxmox.Storage.Snippets != "", s.Proxmox.Storage.Snippets},
		{"k3sToken", s.Provided.K3sToken, ""},
		{"k3sIdentity", s.Provided.K3sIdentity, ""},
	}
}

func talosOnly(s spec.Spec) []specKey {
	c, i := s.Cluster, s.Image
	keys := []specKey{
		{"cluster.bootstrap", c.Bootstrap != "" && c.Bootstrap != spec.BootstrapPulumi, string(c.Bootstrap)},
		{"cluster.versions.talos", c.Versions.Talos != "", c.Versions.Talos},
		{"cluster.versions.contract", c.Versions.Contract != "", c.Versions.Contract},
		{"cluster.versions.kubernetes", c.Versions.Kubernetes != "", c.Versions.Kubernetes},
		{
			"cluster.endpoint.mode", c.Endpoint.Mode == spec.EndpointVIP || c.Endpoint.Mode == spec.EndpointKubeVIP,
			string(c.Endpoint.Mode),
		},
		{"cluster.cni.name", c.CNI.Name != "" && c.CNI.Name != spec.CNIFlannel, string(c.CNI.Name)},
		{"cluster.cni.kubeProxy", c.CNI.KubeProxy != nil && !*c.CNI.KubeProxy, "false"},
		{"cluster.discovery", c.Discovery != "", string(c.Discovery)},
		{"cluster.patches", len(c.Patches) > 0, ""},
		{"cluster.logs", len(c.Logs.Services)+len(c.Logs.Kernel) > 0, ""},
		{"cluster.encryption", c.Encryption != "", string(c.Encryption)},
		{"image.source", i.Source == spec.SourceISO || i.Source == spec.SourceFactory, string(i.Source)},
		{"image.platform", i.Platform != "", string(i.Platform)},
		{"image.schematic", i.Schematic != nil, ""},
		{"image.secureBoot", i.SecureBoot, "true"},
		{"network.timeServers", len(s.Network.TimeServers) > 0, ""},
		{"tailscale", s.Tailscale != nil, ""},
		{"machineSecrets", s.Provided.MachineSecrets, ""},
		{"lifecycle.kubeconfigRenewal", s.Lifecycle.KubeconfigRenewal != "", s.Lifecycle.KubeconfigRenewal},
		{"lifecycle.backup.dir", s.Lifecycle.Backup.Dir != "", s.Lifecycle.Backup.Dir},
		{"lifecycle.backup.recipients", len(s.Lifecycle.Backup.Recipients) > 0, ""},
		{"backupPassphrase", s.Provided.BackupPassphrase, ""},
		{"ccmToken", s.Provided.CCMToken, ""},
		{"lifecycle.apply", s.Lifecycle.Apply != "", string(s.Lifecycle.Apply)},
		{"lifecycle.bootstrapWaitsForWorkers", s.Lifecycle.BootstrapWaitsForWorkers, "true"},
	}

	keys = append(keys, specKey{
		"outputs.workerConfiguration", s.Outputs.WorkerConfiguration != "", s.Outputs.WorkerConfiguration,
	})

	if s.Outputs.Files != nil {
		for n, name := range s.Outputs.Files.Write {
			keys = append(keys, specKey{checks.At("outputs.files.write", n), name != "kubeconfig", string(name)})
		}
	}

	return keys
}

// checkK3sModes refuses what of the pools belongs to Talos, and holds the cloud image.
func (r *resolver) checkK3sModes() {
	var keys []specKey

	for _, p := range r.pools {
		keys = append(keys,
			specKey{p.path + ".patches", len(p.Patches) > 0, ""},
			specKey{p.path + ".addressing", p.Addressing != "", string(p.Addressing)},
			specKey{p.path + ".image.schematic", p.Image.Schematic != nil, ""},
			specKey{p.path + ".image.secureBoot", p.Image.SecureBoot != nil, ""},
		)

		for _, m := range p.members {
			if m.path != p.path {
				keys = append(keys,
					specKey{m.path + ".patches", len(m.Patches) > 0, ""},
					specKey{m.path + ".addressing", m.Addressing != "", string(m.Addressing)})
			}
		}
	}

	r.refuse(spec.DistributionK3s, keys)
}
