package planner

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/spec"
)

// TestAPIServerStarts: settings of cluster.apiServer that an API server does not start with, or ignores, are refused.
func TestAPIServerStarts(t *testing.T) {
	t.Parallel()

	s := small()
	s.Cluster.APIServer = spec.APIServer{
		Authentication: &spec.InlineOrFile{
			Text: "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n",
		},
		Audit: &spec.InlineOrFile{
			Text:   "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{levels: None}]\n",
			Origin: "policies/audit.yaml",
		},
		Admission: map[string]map[string]any{"EventRateLimits": {}, "PodNodeSelector": {}, "PodSecurity": {}},
	}

	const audit = "cluster.apiServer.audit: must be a valid audit policy: rules[0]."

	assert.Equal(t, []string{
		audit + "levels is not a field of an audit policy (given: policies/audit.yaml); correct it",
		audit + "level must be one of None, Metadata, Request, RequestResponse (given: policies/audit.yaml); correct it",
		"cluster.apiServer.admission.EventRateLimits: is not an admission plugin of Kubernetes; did you mean \"EventRateLimit\"?",
		"cluster.apiServer.authentication: sets anonymous, with which the API server does not start: Talos sets " +
			"--anonymous-auth=false; leave anonymous out: anonymous requests are refused without it",
	}, said(t, s))
}

// TestK3sStarts: arguments that end K3s, and those that may.
func TestK3sStarts(t *testing.T) {
	t.Parallel()

	s := onK3s(small().with("worker", workersWith(spec.VMSpec{})))
	s.Cluster.Versions.K3s = "v1.37.1+k3s1"
	s.Cluster.APIServer.Admission = map[string]map[string]any{"EventRateLimit": {}}
	s.K3s = &spec.K3s{
		ServerArgs: []string{
			"--kube-apiserver-arg=feature-gates=SidecarContainers=true,InPlacePodVerticalScaling=true",
			"--kube-apiserver-arg=enable-admission-plugins=NodeRestriction",
		},
		AgentArgs: []string{
			"--kubelet-arg=feature-gates=MemoryManager=true", "--kubelet-arg=node-labels=a=b,node-role.kubernetes.io/worker=",
		},
	}

	assert.Equal(t, []string{
		"k3s.serverArgs[0]: kube-apiserver does not start with a feature gate that Kubernetes 1.37 removed (given: " +
			"SidecarContainers); leave it out, here and in the config.yaml of K3s on nodes that run",
		"k3s.agentArgs[0]: the kubelet does not start with a feature gate that Kubernetes 1.36 removed (given: " +
			"MemoryManager); leave it out, here and in the config.yaml of K3s on nodes that run",
		"k3s.agentArgs[1]: the kubelet does not start with a restricted label (given: node-role.kubernetes.io/worker); " +
			"use labels of the pool",
		"cluster.apiServer.admission.EventRateLimit: is not enabled: k3s.serverArgs sets enable-admission-plugins without " +
			"it; add it there, or leave that argument out",
	}, said(t, s))

	s.Cluster.Versions.K3s = "v1.38.1+k3s1"
	s.Cluster.APIServer.Admission = map[string]map[string]any{"Mutating": {}}
	s.K3s = &spec.K3s{
		AgentArgs: []string{"--protect-kernel-defaults", "--kubelet-arg=feature-gates=Later=true"},
	}

	assert.Subset(t, warningsOf(placed(t, s)), []string{
		"k3s.agentArgs[0]: K3s does not start unless the image sets vm.overcommit_memory=1, vm.panic_on_oom=0, " +
			"kernel.panic=10 and kernel.panic_on_oops=1 (given: --protect-kernel-defaults); set them in the image, in " +
			"/etc/sysctl.d",
		"k3s.agentArgs[1]: no list of removed feature gates is known for Kubernetes 1.38; compare it with the release " +
			"notes of Kubernetes: a component does not start with a gate that it does not know",
		"cluster.apiServer.admission.Mutating: is not an admission plugin of Kubernetes up to 1.37; check its name",
	})
}
