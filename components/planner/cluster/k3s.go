package cluster

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

var (
	// k3sVersion is what K3s releases: a version of Kubernetes, and K3s' own count.
	k3sVersion = regexp.MustCompile(`^v?((\d+\.\d+\.\d+)(?:-rc\d+)?\+k3s\d+)$`)
	// ubuntuPackage is the name of a package (Debian Policy 5.6.1).
	ubuntuPackage = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
)

// k3sMirror is a URL that others follow below. It goes into scripts.
func (r *Resolver) k3sMirror(path, text, example string) string {
	if text == "" {
		return ""
	}

	r.CheckURL(path, text, example, "https", "http")

	if strings.ContainsAny(text, "'?# \t\n") {
		r.Problems.Add(path, "must end with the path, and must not hold quotes or spaces", text, "write it like "+example)
	}

	return strings.TrimRight(text, "/")
}

// checkK3s holds what K3s is told.
func (r *Resolver) checkK3s(p *plan.Plan) {
	k := *r.Spec.K3s
	p.Kubernetes = r.k3sVersion()
	p.CNI, p.KubeProxy = spec.CNIFlannel, true

	p.K3s = &plan.PlannedK3s{
		Version: "v" + strings.TrimPrefix(r.Spec.Cluster.Versions.K3s, "v"), Disable: k.Disable, ServerArgs: k.ServerArgs,
		AgentArgs: k.AgentArgs,
		Checksum:  strings.TrimPrefix(k.Checksum, "sha256:"), User: k.User, SSHKeys: k.SSHKeys,
		InstallChecksum: strings.TrimPrefix(k.InstallChecksum, "sha256:"),
		GenerateSSHKey:  k.GenerateSSHKey,
		Packages:        k.Packages, Upgrade: *k.UpgradePackages, TokenProvided: r.Spec.Provided.K3sToken,
		Snippets: r.Spec.Proxmox.Storage.Snippets, StartTimeout: r.Duration("k3s.startTimeout", k.StartTimeout),
		IdentityProvided: r.Spec.Provided.K3sIdentity,
		Pods:             r.k3sNetwork("k3s.clusterCIDR", k.ClusterCIDR, plan.K3sPods),
		Services:         r.k3sNetwork("k3s.serviceCIDR", k.ServiceCIDR, plan.K3sServices),
		Mirror:           r.k3sMirror("k3s.mirror", k.Mirror, "https://mirror.lan/k3s"),
		AptMirror:        r.k3sMirror("k3s.aptMirror", k.AptMirror, "https://mirror.lan/ubuntu"),
	}

	if d := p.K3s.StartTimeout; d > 0 && d < time.Minute {
		r.Problems.Add("k3s.startTimeout", "must be at least 1m: K3s unpacks its images when it starts", k.StartTimeout,
			"raise it")
	}

	r.CheckName("proxmox.storage.snippets", &r.Spec.Proxmox.Storage.Snippets, "a datastore")

	for i, name := range k.Disable {
		path := checks.At("k3s.disable", i)
		if checks.OneOf(&r.Problems, path, name, "coredns", "local-storage", "metrics-server", "runtimes", "servicelb",
			"traefik") &&
			slices.Contains(k.Disable[:i], name) {
			r.Problems.Add(path, "is named twice", name, "remove one")
		}
	}

	r.checkK3sArgs(k3sServerArgs, k.ServerArgs, p.Kubernetes)
	r.checkK3sAPIServerArgs(k.ServerArgs)
	r.checkK3sArgs(k3sAgentArgs, k.AgentArgs, p.Kubernetes)
	r.checkK3sNetworkArgs(p, k3sServerArgs, k.ServerArgs)
	r.checkK3sNetworkArgs(p, k3sAgentArgs, k.AgentArgs)
	r.checkK3sStart(k3sServerArgs, k.ServerArgs, p.Kubernetes)
	r.checkK3sStart(k3sAgentArgs, k.AgentArgs, p.Kubernetes)

	if k.Checksum != "" && !checks.Checksum.MatchString(k.Checksum) {
		r.Problems.Add("k3s.checksum", "must be a SHA-256 checksum", k.Checksum,
			"write it like sha256: and 64 hexadecimal digits, as the release's sha256sum-amd64.txt has it")
	}

	if k.InstallChecksum != "" && !checks.Checksum.MatchString(k.InstallChecksum) {
		r.Problems.Add("k3s.installChecksum", "must be a SHA-256 checksum", k.InstallChecksum,
			"write it like sha256: and 64 hexadecimal digits, as sha256sum install.sh prints them")
	}

	if k.InstallChecksum == "" && (k.Checksum != "" || r.Spec.Environment == spec.EnvironmentProduction) {
		r.Warn("k3s.installChecksum", "is not set, so nodes run the installation script as root without verifying it", "",
			"set the SHA-256 checksum of install.sh of the release")
	}

	if !userName.MatchString(k.User) || k.User == "root" {
		r.Problems.Add("k3s.user", "must be the name of a user other than root", k.User, "write it like ubuntu")
	}

	for i, key := range k.SSHKeys {
		if public, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(key)); err != nil || public == nil || len(rest) > 0 {
			given := key
			if strings.Contains(key, "PRIVATE KEY") {
				given = "" // it is the other half
			}

			r.Problems.Add(checks.At("k3s.sshKeys", i), "must be one public key of OpenSSH", given,
				"copy the line of a file that ends in .pub")
		}
	}

	for i, name := range k.Packages {
		if !ubuntuPackage.MatchString(name) {
			r.Problems.Add(checks.At("k3s.packages", i), "must be the name of an Ubuntu package", name,
				"write it like nfs-common")
		}
	}
}

// k3sVersion is the version of Kubernetes in the one of K3s.
func (r *Resolver) k3sVersion() string {
	const path = "cluster.versions.k3s"

	given := r.Spec.Cluster.Versions.K3s
	m := k3sVersion.FindStringSubmatch(given)

	switch {
	case given == "":
		r.Problems.Add(path, "is required with cluster.kind k3s", "", "set it, for example to v1.34.2+k3s1")
	case m == nil:
		r.Problems.Add(path, "must be a full version of K3s", given, "write it like v1.34.2+k3s1")
	case !r.checkMajor(path, given, "v1.34.2+k3s1"):
	case plan.Minor(m[2]) < plan.OldestK3s:
		r.Problems.Add(path, fmt.Sprintf("must be 1.%d or later: older ones are not supported", plan.OldestK3s), given,
			"raise it")
	default:
		return "v" + m[2]
	}

	return ""
}

// k3sNetwork reads a network of the cluster.
func (r *Resolver) k3sNetwork(path, text string, fallback netip.Prefix) netip.Prefix {
	if text == "" {
		return fallback
	}

	prefix, err := netip.ParsePrefix(text)

	switch {
	case err != nil:
		r.Problems.Add(path, "must be one network in CIDR form", text, "write it like "+fallback.String())
	case prefix != prefix.Masked():
		r.Problems.Add(path, "must be the network's first address", text, "write "+prefix.Masked().String())
	case prefix.Bits() == 0:
		r.Problems.Add(path, "must not be the whole of the Internet", text, "write it like "+fallback.String())
	default:
		return prefix
	}

	return fallback
}
