package cluster

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"talos-proxmox/components/kubecomponents"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/spelling"
)

// k3sArgument is a long option with its value, or one that stands for yes.
var k3sArgument = regexp.MustCompile(`^--([a-z][a-z0-9-]*)(?:=(.*))?$`)

// The keys with arguments of K3s.
const (
	k3sServerArgs = "k3s.serverArgs"
	k3sAgentArgs  = "k3s.agentArgs"
)

// argumentName is an argument without its value, which may be a secret. What is no option may be the value of the one
// before.
func argumentName(arg string) string {
	if !strings.HasPrefix(arg, "-") {
		return ""
	}

	name, _, _ := strings.Cut(arg, "=")

	return strings.Fields(name)[0]
}

func (r *Resolver) checkK3sArgs(path string, args []string, version string) {
	for i, arg := range args {
		m := k3sArgument.FindStringSubmatch(arg)
		if m == nil {
			r.Problems.Add(checks.At(path, i), "must be a long option of k3s", argumentName(arg),
				"write it like --kube-apiserver-arg=audit-log-maxage=30")

			continue
		}

		passed := passedOn(arg)

		if passed.option == "kubelet-arg" && passed.name == "hostname-override" {
			r.Problems.Add(checks.At(path, i), "is set by the program itself", "--kubelet-arg=hostname-override",
				"leave it out, and use pools.<name>.names")
		} else if passed.option == apiServerOption && passed.name == "secure-port" {
			// K3s asks its API server at the port that it gave it.
			r.Problems.Add(checks.At(path, i), "is set by K3s itself", "--kube-apiserver-arg=secure-port", "leave it out")
		} else if instead, own := k3sOwn[m[1]]; own {
			remedy := "leave it out"
			if instead != "" {
				remedy += ", and use " + instead
			}

			// Its value may be a token.
			r.Problems.Add(checks.At(path, i), "is set by the program itself", "--"+m[1], remedy)
		} else if path == k3sAgentArgs && slices.Contains(k3sServerOptions, m[1]) {
			r.Problems.Add(checks.At(path, i), "belongs in k3s.serverArgs: agents have no such option", "--"+m[1],
				"move it there")
		} else {
			r.checkK3sOption(path, i, m[1], version)
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
		passed := passedOn(arg)
		if passed.option != apiServerOption {
			continue
		}

		name := passed.name
		_, configured := own[name]
		given := "--" + apiServerOption + "=" + name

		switch {
		case configured:
			r.Problems.Add(checks.At(k3sServerArgs, i), "is already set by cluster.apiServer", given, "leave one "+
				"of the two out")
		case a.Authentication != nil && strings.HasPrefix(name, "oidc-"), a.OIDC != nil && name == "authentication-config":
			r.Problems.Add(checks.At(k3sServerArgs, i), "cannot be combined with cluster.apiServer: an API "+
				"server accepts only one of the two", given,
				"leave one of the two out")
		}
	}
}

// checkK3sOption checks that K3s has an option. Of one that it does not have, a server says so in its log and goes on
// without (K3s: pkg/configfilearg, stripInvalidFlags); an agent does not start.
func (r *Resolver) checkK3sOption(path string, i int, name, version string) {
	known, command := slices.Concat(k3sNodeOptions, k3sServerOptions), "k3s server"
	rule, effect := "is an option that 'k3s server' does not have", "servers would ignore it"

	if path == k3sAgentArgs {
		known, command = slices.Concat(k3sNodeOptions, k3sAgentOptions), "k3s agent"
		rule, effect = "is an option that 'k3s agent' does not have", "agents would not start with it"
	}

	if slices.Contains(known, name) {
		return
	}

	remedy := fmt.Sprintf("correct it: '%s --help' lists the options", command)
	near := spelling.Nearest(name, known, max(len(name)/3, 2)+1)
	instead, own := k3sOwn[near]

	switch {
	case slices.Contains(k3sAgentOptions, name):
		remedy = "move it to " + k3sAgentArgs
	case own && instead != "":
		remedy = fmt.Sprintf("did you mean --%s? Use %s instead", near, instead)
	case near != "" && !own:
		remedy = fmt.Sprintf("did you mean --%s?", near)
	}

	if maybeMoreOptions(version) {
		r.Warn(checks.At(path, i), fmt.Sprintf("%s in the releases up to v1.%d.%d+k3s1: if the release of "+
			"cluster.versions.k3s does not have it either, %s", rule, newestListed, k3sListed[newestListed], effect),
			"--"+name, remedy)

		return
	}

	r.Problems.Add(checks.At(path, i), rule+": "+effect, "--"+name, remedy)
}

// k3sComponents are the components whose arguments K3s passes on, by its option.
var k3sComponents = map[string]string{
	apiServerOption: "kube-apiserver", "kube-controller-manager-arg": "kube-controller-manager",
	"kube-controller-arg": "kube-controller-manager", // its older name
	"kube-scheduler-arg":  "kube-scheduler", "kubelet-arg": "the kubelet", "kube-proxy-arg": "kube-proxy",
}

const apiServerOption = "kube-apiserver-arg"

// passedArg is an argument that K3s passes on to a component.
type passedArg struct{ option, component, name, value string }

// passedOn reads an argument of K3s for a component, without a component where it is none. What K3s passes on may begin
// with dashes, and end with a sign that adds the value to those that K3s sets (K3s: pkg/daemons/config, GetArgs).
func passedOn(arg string) passedArg {
	option, rest, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
	name, value, _ := strings.Cut(strings.TrimPrefix(rest, "--"), "=")

	return passedArg{option: option, component: k3sComponents[option], name: strings.TrimRight(name, "+-"), value: value}
}

// checkK3sNetworkArgs: the networks of pods and services have keys, by which firewalls, certificates and checks go.
// kube-proxy only tells pods from others by its argument.
func (r *Resolver) checkK3sNetworkArgs(p *plan.Plan, path string, args []string) {
	for i, arg := range args {
		passed := passedOn(arg)
		if path == k3sAgentArgs && slices.Contains(k3sServerOptions, passed.option) {
			continue // refused already
		}

		argument := passed.component + " " + passed.name
		option := "--" + passed.option + "=" + passed.name

		key, network := "k3s.clusterCIDR", p.K3s.Pods
		if argument == "kube-apiserver service-cluster-ip-range" {
			key, network = "k3s.serviceCIDR", p.K3s.Services
		}

		given, err := netip.ParsePrefix(passed.value)
		given = given.Masked()
		holds := err == nil && spec.Holds(given, network)

		switch argument {
		case "kube-controller-manager cluster-cidr", "kube-apiserver service-cluster-ip-range":
			if given != network {
				r.Problems.Add(checks.At(path, i), "must be "+key+", "+network.String()+", by which the firewalls and "+
					"the checks go", option, "leave it out, and use "+key)
			}
		case "kube-proxy cluster-cidr":
			if !holds {
				r.Problems.Add(checks.At(path, i), "must hold "+key+", "+network.String()+", the network of pods", option,
					"leave it out: K3s sets it")
			}
		}
	}
}

// checkK3sStart: a component does not start with a feature gate that it does not know, and K3s ends with it. With
// --protect-kernel-defaults, the kubelet does not start with the kernel settings that Ubuntu has.
func (r *Resolver) checkK3sStart(path string, args []string, kubernetes string) {
	for i, arg := range args {
		if name, value, _ := strings.Cut(arg, "="); name == "--protect-kernel-defaults" && value != "false" {
			r.Warn(checks.At(path, i), "K3s does not start unless the image sets vm.overcommit_memory=1, vm.panic_on_oom=0, "+
				"kernel.panic=10 and kernel.panic_on_oops=1", name, "set them in the image, in /etc/sysctl.d")
		}

		passed := passedOn(arg)
		r.checkK3sLabels(checks.At(path, i), passed)

		if passed.component == "" || passed.name != kubecomponents.FeaturesFlag {
			continue
		}

		for _, gate := range kubecomponents.Features(passed.value) {
			if minor, removed := kubecomponents.FeatureRemoved(gate, kubernetes); removed {
				r.Problems.Add(checks.At(path, i), fmt.Sprintf("%s does not start with a feature gate that Kubernetes 1.%d removed",
					passed.component, minor), gate, "leave it out, here and in the config.yaml of K3s on nodes that run")
			}
		}

		if minor := plan.Minor(kubernetes); minor > kubecomponents.NewestFeatures {
			r.Warn(checks.At(path, i), fmt.Sprintf("no list of removed feature gates is known for Kubernetes 1.%d", minor), "",
				"compare it with the release notes of Kubernetes: a component does not start with a gate that it does not know")
		}
	}
}

// checkK3sLabels: a kubelet does not start with a restricted label.
func (r *Resolver) checkK3sLabels(path string, passed passedArg) {
	if passed.option != "kubelet-arg" || passed.name != "node-labels" {
		return
	}

	for _, key := range plan.RestrictedIn(passed.value) {
		r.Problems.Add(path, "the kubelet does not start with a restricted label", key, "use labels of the pool")
	}
}

// The options of K3s 1.28 to 1.35 (K3s: pkg/cli/cmds, server.go, agent.go, root.go, log.go and config.go of
// v1.35.0+k3s1; options that were removed since 1.28, and those of later releases that are known, among them).
var (
	// k3sNodeOptions are those of servers and agents.
	k3sNodeOptions = words(`
		airgap-extra-registry alsologtostderr bind-address config container-runtime-endpoint data-dir debug
		default-runtime disable-default-registry-endpoint docker enable-pprof flannel-cni-conf flannel-conf
		flannel-iface image-credential-provider-bin-dir image-credential-provider-config image-service-endpoint
		kube-proxy-arg kubelet-arg lb-server-port log node-external-dns node-external-ip node-internal-dns node-ip
		node-label node-name node-taint nonroot-devices pause-image prefer-bundled-bin private-registry
		protect-kernel-defaults resolv-conf rootless selinux server snapshotter token token-file v vmodule vpn-auth
		vpn-auth-file with-node-id`)
	// k3sServerOptions are those that agents do not have.
	k3sServerOptions = words(`
		advertise-address advertise-port agent-token agent-token-file apiserver-bind-address apiserver-port
		cluster-cidr cluster-dns cluster-domain cluster-init cluster-reset cluster-reset-restore-path
		datastore-cafile datastore-certfile datastore-endpoint datastore-keyfile default-local-storage-path disable
		disable-agent disable-apiserver disable-cloud-controller disable-controller-manager disable-etcd
		disable-helm-controller disable-kube-proxy disable-network-policy disable-scheduler egress-selector-mode
		embedded-registry etcd-arg etcd-disable-snapshots etcd-expose-metrics etcd-s3 etcd-s3-access-key
		etcd-s3-bucket etcd-s3-bucket-lookup-type etcd-s3-config-secret etcd-s3-endpoint etcd-s3-endpoint-ca
		etcd-s3-folder etcd-s3-insecure etcd-s3-proxy etcd-s3-region etcd-s3-retention etcd-s3-secret-key
		etcd-s3-session-token etcd-s3-skip-ssl-verify etcd-s3-timeout etcd-snapshot-compress etcd-snapshot-dir
		etcd-snapshot-name etcd-snapshot-reconcile-interval etcd-snapshot-retention etcd-snapshot-schedule-cron
		flannel-backend flannel-external-ip flannel-ip-masq-disable-random-fully flannel-ipv6-masq
		helm-controller-arg helm-job-image https-listen-port kine-tls kube-apiserver-arg kube-cloud-controller-arg
		kube-cloud-controller-manager-arg kube-controller-arg kube-controller-manager-arg kube-scheduler-arg
		multi-cluster-cidr secrets-encryption secrets-encryption-provider service-cidr service-node-port-range
		servicelb-namespace supervisor-metrics supervisor-port system-default-registry tls-san tls-san-security
		write-kubeconfig write-kubeconfig-group write-kubeconfig-mode`)
	// k3sAgentOptions are those that servers do not have.
	k3sAgentOptions = words(`cluster-secret disable-apiserver-lb disable-selinux no-flannel`)
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
	"supervisor-port": "", "apiserver-port": "", "with-node-id": "",
	"datastore-endpoint": "", "disable-etcd": "", "disable-agent": "", "disable-apiserver": "",
}

// k3sListed are the releases that came out with v1.35.0+k3s1, by their minor version. Later ones may have more options.
// Minor versions before these have no later releases.
var k3sListed = map[uint64]uint64{31: 14, 32: 11, 33: 7, 34: 3, 35: 0}

const oldestListed, newestListed = 31, 35

func words(text string) []string { return strings.Fields(text) }

// maybeMoreOptions says that a version of Kubernetes is newer than the options above.
func maybeMoreOptions(version string) bool {
	v, err := semver.ParseTolerant(version)

	return err != nil || v.Minor > newestListed || v.Minor >= oldestListed && v.Patch > k3sListed[v.Minor]
}
