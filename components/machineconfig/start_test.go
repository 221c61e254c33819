package machineconfig

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestStart: settings of a patch with which a component of Kubernetes, or Talos, does not start are refused, each where
// it is; what is not known is warned of.
func TestStart(t *testing.T) {
	t.Parallel()

	kubernetes135 := spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.35.2"}

	for name, test := range map[string]struct {
		versions   spec.Versions
		patch      string
		want, warn []string
	}{
		"fields of the kubelet": {
			versions: plantest.Talos112,
			patch: "machine: {kubelet: {extraConfig: {maxPods: 200, maxPod: 200, podsPerCore: many, " +
				"logging: {verbose: true}}}}",
			want: []string{
				"the kubelet does not start with machine.kubelet.extraConfig.podsPerCore: KubeletConfiguration has another " +
					"type of value there",
				"the kubelet does not start with machine.kubelet.extraConfig.logging.verbose: KubeletConfiguration has no such " +
					"field",
				"the kubelet does not start with machine.kubelet.extraConfig.maxPod: KubeletConfiguration has no such field",
			},
		},
		"a field that a later Talos may know": {
			versions: plantest.Talos114, patch: "machine: {kubelet: {extraConfig: {maxPod: 200}}}",
			warn: []string{
				"machine.kubelet.extraConfig.maxPod is not a field of KubeletConfiguration in Kubernetes 1.35: the kubelet does " +
					"not start if Talos " + plantest.Talos114.Talos + " does not know it either",
			},
		},
		"arguments that Talos denies": {
			versions: plantest.Talos112,
			patch: "machine: {kubelet: {extraArgs: {cert-dir: /a, v: '4'}}}\ncluster:\n" +
				"  apiServer: {extraArgs: {etcd-servers: a, authorization-config: /a, tls-min-version: VersionTLS13}}\n" +
				"  controllerManager: {extraArgs: {root-ca-file: /a}}\n  scheduler: {extraArgs: {config: /a}}\n",
			want: []string{
				"Talos v1.12.4 does not start kubelet with machine.kubelet.extraArgs.cert-dir: it sets that argument itself",
				"Talos v1.12.4 does not start kube-apiserver with cluster.apiServer.extraArgs.authorization-config: it sets " +
					"that argument itself",
				"Talos v1.12.4 does not start kube-apiserver with cluster.apiServer.extraArgs.etcd-servers: it sets that " +
					"argument itself",
				"Talos v1.12.4 does not start kube-controller-manager with cluster.controllerManager.extraArgs.root-ca-file: it " +
					"sets that argument itself",
				"Talos v1.12.4 does not start kube-scheduler with cluster.scheduler.extraArgs.config: it sets that argument " +
					"itself",
			},
		},
		"an argument that Talos 1.14 denies": {
			versions: plantest.Talos114, patch: "cluster: {apiServer: {extraArgs: {tls-min-version: VersionTLS13}}}",
			want: []string{
				"Talos " + plantest.Talos114.Talos + " does not start kube-apiserver with " +
					"cluster.apiServer.extraArgs.tls-min-version: it sets that argument itself",
			},
		},
		"removed feature gates": {
			versions: kubernetes135,
			patch: "machine: {kubelet: {extraArgs: {feature-gates: 'PodIndexLabel=true'}, " +
				"extraConfig: {featureGates: {CPUManager: true}}}}\n" +
				"cluster: {apiServer: {extraArgs: {feature-gates: 'MemoryManager=true, StatefulSetAutoDeletePVC=true'}}}",
			want: []string{
				"kubelet does not start with the feature gate PodIndexLabel in machine.kubelet.extraArgs: Kubernetes 1.35 " +
					"removed it",
				"kube-apiserver does not start with the feature gate StatefulSetAutoDeletePVC in cluster.apiServer.extraArgs: " +
					"Kubernetes 1.35 removed it",
				"kubelet does not start with the feature gate CPUManager in machine.kubelet.extraConfig: Kubernetes 1.33 " +
					"removed it",
			},
		},
		"an audit policy": {
			versions: plantest.Talos112,
			patch:    "cluster: {apiServer: {auditPolicy: {rules: [{level: Everything, user: [a]}]}}}",
			want: []string{
				"kube-apiserver does not start with cluster.apiServer.auditPolicy: rules[0].user is not a field of an audit policy",
				"kube-apiserver does not start with cluster.apiServer.auditPolicy: rules[0].level must be one of None, " +
					"Metadata, Request, RequestResponse",
			},
		},
		"files": {
			versions: plantest.Talos111,
			patch: "machine: {files: [{path: /etc/a, op: create, content: a}, {path: /var/a, op: make, content: a}, " +
				"{path: /var/b, op: create, content: a}, {path: /etc/hosts, op: append, content: a}, " +
				"{path: /etc/cri/conf.d/20-customization.part, op: create, content: a}]}",
			want: []string{
				"Talos does not boot with machine.files of /etc/a: op create is only for files below /var",
				"Talos does not boot with machine.files of /var/a: op must be create, append or overwrite",
			},
		},
		"a plugin that is not enabled": {
			versions: plantest.Talos112,
			patch:    "cluster: {apiServer: {admissionControl: [{name: PodNodeSelector, configuration: {}}]}}",
			warn: []string{
				"kube-apiserver ignores the configuration of the admission plugin PodNodeSelector: " +
					"cluster.apiServer.extraArgs.enable-admission-plugins does not name it",
			},
		},
		"kernel arguments with a UKI": {
			versions: plantest.Talos111, patch: "machine: {install: {extraKernelArgs: [quiet]}}",
			warn: []string{
				"machine.install.extraKernelArgs has no effect on a node that Talos " + plantest.Talos111.Talos + " is " +
					"installed on with UEFI: the kernel arguments are in its image",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := patched(test.versions, test.patch, "", "")
			s.Defaults.Firmware = new("ovmf")

			var problems spec.Problems

			warnings, err := Check(plantest.New(t, s))
			if err != nil {
				assert.ErrorAs(t, err, &problems)
			}

			rules := func(all []spec.Problem) (rules []string) {
				for _, p := range all {
					if !strings.HasPrefix(p.Rule, "Talos warns") {
						assert.Equal(t, "cluster.patches[0]", p.Path)

						rules = append(rules, p.Rule)
					}
				}

				return slices.Sorted(slices.Values(rules))
			}

			assert.Equal(t, slices.Sorted(slices.Values(test.want)), rules(problems))
			assert.Equal(t, slices.Sorted(slices.Values(test.warn)), rules(warnings))
		})
	}
}
