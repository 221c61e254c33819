package cluster

import (
	"fmt"
	"strings"

	"talos-proxmox/components/kubecomponents"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
)

// k3sComponents are the components whose arguments K3s passes on, by its option.
var k3sComponents = map[string]string{
	"kube-apiserver-arg": "kube-apiserver", "kube-controller-manager-arg": "kube-controller-manager",
	"kube-scheduler-arg": "kube-scheduler", "kubelet-arg": "the kubelet", "kube-proxy-arg": "kube-proxy",
}

// checkK3sStart: a component does not start with a feature gate that it does not know, and K3s ends with it. With
// --protect-kernel-defaults, the kubelet does not start with the kernel settings that Ubuntu has.
func (r *Resolver) checkK3sStart(path string, args []string, kubernetes string) {
	for i, arg := range args {
		if name, value, _ := strings.Cut(arg, "="); name == "--protect-kernel-defaults" && value != "false" {
			r.Warn(checks.At(path, i), "K3s does not start unless the image sets vm.overcommit_memory=1, vm.panic_on_oom=0, "+
				"kernel.panic=10 and kernel.panic_on_oops=1", name, "set them in the image, in /etc/sysctl.d")
		}

		option, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		r.checkK3sLabels(checks.At(path, i), option, value)

		component := k3sComponents[option]
		flag, list, _ := strings.Cut(value, "=")

		if component == "" || flag != kubecomponents.FeaturesFlag {
			continue
		}

		for _, gate := range kubecomponents.Features(list) {
			if minor, removed := kubecomponents.FeatureRemoved(gate, kubernetes); removed {
				r.Problems.Add(checks.At(path, i), fmt.Sprintf("%s does not start with a feature gate that Kubernetes 1.%d removed",
					component, minor), gate, "leave it out, here and in the config.yaml of K3s on nodes that run")
			}
		}

		if minor := plan.Minor(kubernetes); minor > kubecomponents.NewestFeatures {
			r.Warn(checks.At(path, i), fmt.Sprintf("no list of removed feature gates is known for Kubernetes 1.%d", minor), "",
				"compare it with the release notes of Kubernetes: a component does not start with a gate that it does not know")
		}
	}
}

// checkK3sLabels: a kubelet does not start with a restricted label.
func (r *Resolver) checkK3sLabels(path, option, value string) {
	labels, found := strings.CutPrefix(value, "node-labels=")
	if option != "kubelet-arg" || !found {
		return
	}

	for _, key := range plan.RestrictedIn(labels) {
		r.Problems.Add(path, "the kubelet does not start with a restricted label", key, "use labels of the pool")
	}
}
