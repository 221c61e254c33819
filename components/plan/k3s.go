package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/spec"
)

var (
	// k3sVersion is what K3s releases: a version of Kubernetes, and K3s' own count.
	k3sVersion = regexp.MustCompile(`^v?((\d+\.\d+\.\d+)(?:-rc\d+)?\+k3s\d+)$`)
	// k3sArgument is a long option with its value, or one that stands for yes.
	k3sArgument = regexp.MustCompile(`^--([a-z][a-z0-9-]*)(?:=(.*))?$`)
	// ubuntuPackage is the name of a package (Debian Policy 5.6.1).
	ubuntuPackage = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
)

// k3sOwn are the options that the program states itself, with the key to use instead; empty where there is none.
var k3sOwn = map[string]string{
	"token": "k3sToken", "token-file": "k3sToken", "agent-token": "", "agent-token-file": "", "server": "",
	"cluster-init": "", "cluster-reset": "",
	"node-name": "pools.<name>.names", "node-ip": "network.addressing", "node-label": "labels", "node-taint": "taints",
	"disable": "k3s.disable", "disable-default-registry-endpoint": "cluster.registryOptions.<name>.skipFallback",
	"data-dir": "", "config": "", "flannel-backend": "", "cluster-cidr": "k3s.clusterCIDR",
	"service-cidr": "k3s.serviceCIDR", "https-listen-port": "",
	"write-kubeconfig": "", "write-kubeconfig-mode": "",
	"datastore-endpoint": "", "disable-etcd": "", "disable-agent": "", "disable-apiserver": "",
}

// k3sMirror is a URL that others follow below. It goes into scripts.
func (r *resolver) k3sMirror(path, text, example string) string {
	if text == "" {
		return ""
	}

	r.checkURL(path, text, example, "https", "http")

	if strings.ContainsAny(text, "'?# \t\n") {
		r.problems.Add(path, "must end with the path, and must not hold quotes or spaces", text, "write it like "+example)
	}

	return strings.TrimRight(text, "/")
}

// checkK3s holds what K3s is told.
func (r *resolver) checkK3s(p *Plan) {
	k := *r.spec.K3s
	p.Kubernetes = r.k3sVersion()
	p.CNI, p.KubeProxy = spec.CNIFlannel, true

	p.K3s = &PlannedK3s{
		Version: "v" + strings.TrimPrefix(r.spec.Cluster.Versions.K3s, "v"), Disable: k.Disable, ServerArgs: k.ServerArgs,
		AgentArgs: k.AgentArgs,
		Checksum:  strings.TrimPrefix(k.Checksum, "sha256:"), User: k.User, SSHKeys: k.SSHKeys,
		InstallChecksum: strings.TrimPrefix(k.InstallChecksum, "sha256:"),
		GenerateSSHKey:  k.GenerateSSHKey,
		Packages:        k.Packages, Upgrade: *k.UpgradePackages, TokenProvided: r.spec.Provided.K3sToken,
		Snippets: r.spec.Proxmox.Storage.Snippets, StartTimeout: r.duration("k3s.startTimeout", k.StartTimeout),
		IdentityProvided: r.spec.Provided.K3sIdentity,
		Pods:             r.k3sNetwork("k3s.clusterCIDR", k.ClusterCIDR, K3sPods),
		Services:         r.k3sNetwork("k3s.serviceCIDR", k.ServiceCIDR, K3sServices),
		Mirror:           r.k3sMirror("k3s.mirror", k.Mirror, "https://mirror.lan/k3s"),
		AptMirror:        r.k3sMirror("k3s.aptMirror", k.AptMirror, "https://mirror.lan/ubuntu"),
	}

	if d := p.K3s.StartTimeout; d > 0 && d < time.Minute {
		r.problems.Add("k3s.startTimeout", "must be at least 1m: K3s unpacks its images when it starts", k.StartTimeout,
			"raise it")
	}

	r.checkName("proxmox.storage.snippets", &r.spec.Proxmox.Storage.Snippets, "a datastore")

	for i, name := range k.Disable {
		path := at("k3s.disable", i)
		if oneOf(r, path, name, "coredns", "local-storage", "metrics-server", "runtimes", "servicelb", "traefik") &&
			slices.Contains(k.Disable[:i], name) {
			r.problems.Add(path, "is named twice", name, "remove one")
		}
	}

	r.checkK3sArgs("k3s.serverArgs", k.ServerArgs)
	r.checkK3sAPIServerArgs(k.ServerArgs)
	r.checkK3sArgs("k3s.agentArgs", k.AgentArgs)

	if k.Checksum != "" && !checksum.MatchString(k.Checksum) {
		r.problems.Add("k3s.checksum", "must be a SHA-256 checksum", k.Checksum,
			"write it like sha256: and 64 hexadecimal digits, as the release's sha256sum-amd64.txt has it")
	}

	if k.InstallChecksum != "" && !checksum.MatchString(k.InstallChecksum) {
		r.problems.Add("k3s.installChecksum", "must be a SHA-256 checksum", k.InstallChecksum,
			"write it like sha256: and 64 hexadecimal digits, as sha256sum install.sh prints them")
	}

	if !userName.MatchString(k.User) || k.User == "root" {
		r.problems.Add("k3s.user", "must be the name of a user other than root", k.User, "write it like ubuntu")
	}

	for i, key := range k.SSHKeys {
		if public, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil || public == nil || len(rest) > 0 {
			given := key
			if strings.Contains(key, "PRIVATE KEY") {
				given = "" // it is the other half
			}

			r.problems.Add(at("k3s.sshKeys", i), "must be one public key of OpenSSH", given,
				"copy the line of a file that ends in .pub")
		}
	}

	for i, name := range k.Packages {
		if !ubuntuPackage.MatchString(name) {
			r.problems.Add(at("k3s.packages", i), "must be the name of an Ubuntu package", name, "write it like nfs-common")
		}
	}

	for _, pool := range r.pools {
		r.checkK3sPool(pool)
	}
}

// k3sVersion is the version of Kubernetes in the one of K3s.
func (r *resolver) k3sVersion() string {
	const path = "cluster.versions.k3s"

	given := r.spec.Cluster.Versions.K3s
	m := k3sVersion.FindStringSubmatch(given)

	switch {
	case given == "":
		r.problems.Add(path, "is required with cluster.kind k3s", "", "state it, for example v1.34.2+k3s1")
	case m == nil:
		r.problems.Add(path, "must be a full version of K3s", given, "write it like v1.34.2+k3s1")
	case minor(m[2]) < oldestK3s:
		r.problems.Add(path, fmt.Sprintf("must be 1.%d or later: older ones are not supported", oldestK3s), given, "raise it")
	default:
		return "v" + m[2]
	}

	return ""
}

func (r *resolver) checkK3sArgs(path string, args []string) {
	for i, arg := range args {
		m := k3sArgument.FindStringSubmatch(arg)
		if m == nil {
			r.problems.Add(at(path, i), "must be a long option of k3s", arg,
				"write it like --kube-apiserver-arg=audit-log-maxage=30")

			continue
		}

		if instead, own := k3sOwn[m[1]]; own {
			remedy := "leave it out"
			if instead != "" {
				remedy += ", and use " + instead
			}

			// Its value may be a token.
			r.problems.Add(at(path, i), "is what the program states itself", "--"+m[1], remedy)
		}
	}
}

// checkK3sAPIServerArgs: what cluster.apiServer states is not to be stated again.
func (r *resolver) checkK3sAPIServerArgs(args []string) {
	a := r.spec.Cluster.APIServer
	own := APIServerArgs(a)

	for argument, given := range map[string]bool{
		"authentication-config": a.Authentication != nil, "audit-policy-file": a.Audit != nil,
		"admission-control-config-file": len(a.Admission) > 0,
	} {
		if given {
			own[argument] = ""
		}
	}

	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--kube-apiserver-arg="), "=")
		_, stated := own[name]

		switch {
		case stated:
			r.problems.Add(at("k3s.serverArgs", i), "is what cluster.apiServer states", arg, "leave one of the two out")
		case a.Authentication != nil && strings.HasPrefix(name, "oidc-"), a.OIDC != nil && name == "authentication-config":
			r.problems.Add(at("k3s.serverArgs", i), "excludes cluster.apiServer: an API server takes one of the two", arg,
				"leave one of the two out")
		}
	}
}

// checkK3sPool holds what K3s says that a machine needs (K3s: Requirements), and what would not be carried out.
func (r *resolver) checkK3sPool(p *pool) {
	check := func(path string, s spec.VMSpec) {
		if p.Role == spec.RoleControlPlane && *s.MemoryMiB < 2048 {
			r.problems.Add(path+".memoryMiB", "must be at least 2048: a server of K3s needs it", format(s.MemoryMiB), "raise it")
		}

		for _, key := range slices.Sorted(maps.Keys(s.Annotations)) {
			if strings.HasPrefix(key, "talos-proxmox/") {
				r.problems.Add(path+".annotations."+key, "is what the program writes itself", s.Annotations[key], "leave it out")
			}
		}
	}

	check(p.path, p.shape)

	for _, m := range p.members {
		if m.shaped() {
			check(m.path, p.shape.With(m.VMSpec))
		}
	}
}

// checkKind refuses what belongs to the other kind, and says whether there is such a kind. The spec is as it was given,
// without defaults.
func (r *resolver) checkKind(given spec.Spec) bool {
	switch {
	case !oneOf(r, "cluster.kind", r.spec.Cluster.Distribution, spec.DistributionTalos, spec.DistributionK3s):
		return false
	case r.isK3s():
		r.refuse(spec.DistributionK3s, talosOnly(given))
		r.checkK3sModes()
	default:
		r.refuse(spec.DistributionTalos, k3sOnly(given))
	}

	return true
}

func (r *resolver) refuse(kind spec.Distribution, keys []exclusiveKey) {
	other := spec.DistributionTalos
	if kind == spec.DistributionTalos {
		other = spec.DistributionK3s
	}

	for _, k := range keys {
		if k.given {
			r.problems.Add(k.path, `belongs to cluster.kind "`+string(other)+`"`, k.value,
				`leave it out, or change cluster.kind, which is "`+string(kind)+`"`)
		}
	}
}

func k3sOnly(s spec.Spec) []exclusiveKey {
	return []exclusiveKey{
		{"k3s", s.K3s != nil, ""},
		{"cluster.versions.k3s", s.Cluster.Versions.K3s != "", s.Cluster.Versions.K3s},
		{"image.source", s.Image.Source == spec.SourceCloudImage, string(s.Image.Source)},
		{"image.cloudImage", s.Image.CloudImage != spec.CloudImage{}, ""},
		{"proxmox.storage.snippets", s.Proxmox.Storage.Snippets != "", s.Proxmox.Storage.Snippets},
		{"k3sToken", s.Provided.K3sToken, ""},
		{"k3sIdentity", s.Provided.K3sIdentity, ""},
	}
}

func talosOnly(s spec.Spec) []exclusiveKey {
	c, i := s.Cluster, s.Image
	keys := []exclusiveKey{
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

	keys = append(keys, exclusiveKey{
		"outputs.workerConfiguration", s.Outputs.WorkerConfiguration != "", s.Outputs.WorkerConfiguration,
	})

	if s.Outputs.Files != nil {
		for n, name := range s.Outputs.Files.Write {
			keys = append(keys, exclusiveKey{at("outputs.files.write", n), name != "kubeconfig", string(name)})
		}
	}

	return keys
}

// checkK3sModes refuses what of the pools belongs to Talos, and holds the cloud image.
func (r *resolver) checkK3sModes() {
	var keys []exclusiveKey

	for _, p := range r.pools {
		keys = append(keys,
			exclusiveKey{p.path + ".patches", len(p.Patches) > 0, ""},
			exclusiveKey{p.path + ".addressing", p.Addressing != "", string(p.Addressing)},
			exclusiveKey{p.path + ".image.schematic", p.Image.Schematic != nil, ""},
			exclusiveKey{p.path + ".image.secureBoot", p.Image.SecureBoot != nil, ""},
		)

		for _, m := range p.members {
			if m.path != p.path {
				keys = append(keys,
					exclusiveKey{m.path + ".patches", len(m.Patches) > 0, ""},
					exclusiveKey{m.path + ".addressing", m.Addressing != "", string(m.Addressing)})
			}
		}
	}

	r.refuse(spec.DistributionK3s, keys)
}

// K3sPods are the addresses of pods, K3sServices those of services, K3s' defaults.
var (
	K3sPods     = netip.MustParsePrefix("10.42.0.0/16")
	K3sServices = netip.MustParsePrefix("10.43.0.0/16")
)

// k3sNetwork reads a network of the cluster.
func (r *resolver) k3sNetwork(path, text string, otherwise netip.Prefix) netip.Prefix {
	if text == "" {
		return otherwise
	}

	prefix, err := netip.ParsePrefix(text)

	switch {
	case err != nil:
		r.problems.Add(path, "must be one network in CIDR form", text, "write it like "+otherwise.String())
	case prefix != prefix.Masked():
		r.problems.Add(path, "must be the network's first address", text, "write "+prefix.Masked().String())
	default:
		return prefix
	}

	return otherwise
}
