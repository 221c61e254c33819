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

	r.checkK3sArgs("k3s.serverArgs", k.ServerArgs)
	r.checkK3sAPIServerArgs(k.ServerArgs)
	r.checkK3sArgs("k3s.agentArgs", k.AgentArgs)
	r.checkK3sStart("k3s.serverArgs", k.ServerArgs, p.Kubernetes)
	r.checkK3sStart("k3s.agentArgs", k.AgentArgs, p.Kubernetes)

	if k.Checksum != "" && !checks.Checksum.MatchString(k.Checksum) {
		r.Problems.Add("k3s.checksum", "must be a SHA-256 checksum", k.Checksum,
			"write it like sha256: and 64 hexadecimal digits, as the release's sha256sum-amd64.txt has it")
	}

	if k.InstallChecksum != "" && !checks.Checksum.MatchString(k.InstallChecksum) {
		r.Problems.Add("k3s.installChecksum", "must be a SHA-256 checksum", k.InstallChecksum,
			"write it like sha256: and 64 hexadecimal digits, as sha256sum install.sh prints them")
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
	case plan.Minor(m[2]) < plan.OldestK3s:
		r.Problems.Add(path, fmt.Sprintf("must be 1.%d or later: older ones are not supported", plan.OldestK3s), given,
			"raise it")
	default:
		return "v" + m[2]
	}

	return ""
}

// argumentName is an argument without its value, which may be a secret. What is no option may be the value of the one
// before.
func argumentName(arg string) string {
	if !strings.HasPrefix(arg, "-") {
		return ""
	}

	name, _, _ := strings.Cut(arg, "=")

	return strings.Fields(name)[0]
}

// k3sServerOptions are options that agents do not have (K3s: k3s server, k3s agent), in addition to those with a prefix
// of their own.
var k3sServerOptions = map[string]bool{
	"tls-san": true, "tls-san-security": true, "advertise-address": true, "advertise-port": true,
	"kube-apiserver-arg": true, "kube-controller-manager-arg": true, "kube-scheduler-arg": true,
	"kube-cloud-controller-manager-arg": true, "secrets-encryption": true, "service-node-port-range": true,
	"cluster-dns": true, "cluster-domain": true, "cluster-reset-restore-path": true, "disable-scheduler": true,
	"disable-cloud-controller": true, "disable-kube-proxy": true, "disable-network-policy": true,
	"disable-helm-controller": true, "disable-controller-manager": true, "egress-selector-mode": true,
	"embedded-registry": true, "default-local-storage-path": true,
}

func ofServers(option string) bool {
	return k3sServerOptions[option] || strings.HasPrefix(option, "etcd-") || strings.HasPrefix(option, "datastore-") ||
		strings.HasPrefix(option, "write-kubeconfig")
}

func (r *Resolver) checkK3sArgs(path string, args []string) {
	for i, arg := range args {
		m := k3sArgument.FindStringSubmatch(arg)
		if m == nil {
			r.Problems.Add(checks.At(path, i), "must be a long option of k3s", argumentName(arg),
				"write it like --kube-apiserver-arg=audit-log-maxage=30")

			continue
		}

		if instead, own := k3sOwn[m[1]]; own {
			remedy := "leave it out"
			if instead != "" {
				remedy += ", and use " + instead
			}

			// Its value may be a token.
			r.Problems.Add(checks.At(path, i), "is set by the program itself", "--"+m[1], remedy)
		} else if path == "k3s.agentArgs" && ofServers(m[1]) {
			r.Problems.Add(checks.At(path, i), "belongs in k3s.serverArgs: agents have no such option", "--"+m[1],
				"move it there")
		}
	}
}

// checkK3sAPIServerArgs: what cluster.apiServer sets must not be set again.
func (r *Resolver) checkK3sAPIServerArgs(args []string) {
	a := r.Spec.Cluster.APIServer
	own := plan.APIServerArgs(a)

	for argument, set := range map[string]bool{
		"authentication-config": a.Authentication != nil, "audit-policy-file": a.Audit != nil,
		"admission-control-config-file": len(a.Admission) > 0,
	} {
		if set {
			own[argument] = ""
		}
	}

	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--kube-apiserver-arg="), "=")
		_, configured := own[name]
		given := "--kube-apiserver-arg=" + name

		switch {
		case configured:
			r.Problems.Add(checks.At("k3s.serverArgs", i), "is already set by cluster.apiServer", given, "leave one "+
				"of the two out")
		case a.Authentication != nil && strings.HasPrefix(name, "oidc-"), a.OIDC != nil && name == "authentication-config":
			r.Problems.Add(checks.At("k3s.serverArgs", i), "cannot be combined with cluster.apiServer: an API "+
				"server accepts only one of the two", given,
				"leave one of the two out")
		}
	}
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
	default:
		return prefix
	}

	return fallback
}
