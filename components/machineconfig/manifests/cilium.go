package manifests

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

const (
	ciliumName = "cilium-install"
	// ciliumCLI installs Cilium 1.16 and later.
	ciliumCLI  = "quay.io/cilium/cilium-cli:v0.19.7"
	valuesDir  = "/values"
	valuesFile = "values.yaml"
)

// cilium is the installation by a job (Talos: Deploying Cilium CNI, method 5), with the settings given there. Talos
// makes objects and never changes them, so another version or other values are another job, which runs at once. The
// Cilium CLI has one command to install and one to upgrade, and its image has no shell to choose. So a sidecar
// installs, which does nothing where Cilium is there; the job itself upgrades, and is tried again until there is
// something to upgrade.
func cilium(p *plan.Plan) ([]runtime.Object, error) {
	values, err := yaml.Marshal(ciliumValues(p))
	if err != nil {
		return nil, err
	}

	job, err := install(ciliumName, ciliumName, p.CNIVersion, map[string]string{valuesFile: string(values)}, ciliumJob(p))

	return append(installer(ciliumName), job...), err
}

func ciliumJob(p *plan.Plan) batchv1.JobSpec {
	command := func(verb string, more ...string) corev1.Container {
		return corev1.Container{
			Name: verb, Image: ciliumCLI,
			Command: append([]string{"cilium", verb, "--version", p.CNIVersion, "--values", valuesDir + "/" + valuesFile},
				more...),
			Env:          kubePrism(),
			VolumeMounts: []corev1.VolumeMount{{Name: "values", MountPath: valuesDir, ReadOnly: true}},
		}
	}

	install := command("install")
	install.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)

	return batchv1.JobSpec{
		// The restarts of the sidecar count too.
		BackoffLimit: new(int32(jobAttempts)),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": ciliumName}},
			Spec: onControlPlanes(corev1.PodSpec{
				ServiceAccountName: ciliumName,
				RestartPolicy:      corev1.RestartPolicyOnFailure,
				InitContainers:     []corev1.Container{install},
				// What a value was before is forgotten: only what the stack says now holds.
				Containers: []corev1.Container{command("upgrade", "--reset-values")},
				Volumes: []corev1.Volume{{Name: "values", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{},
				}}},
			}),
		},
	}
}

// ciliumValues are the values that Talos documents, and over them the operator's.
func ciliumValues(p *plan.Plan) map[string]any {
	return merged(merged(map[string]any{
		"ipam":                 map[string]any{"mode": "kubernetes"},
		"kubeProxyReplacement": !p.KubeProxy,
		"k8sServiceHost":       kubePrismHost,
		"k8sServicePort":       constants.DefaultKubePrismPort,
		// Talos mounts it; and no pod may load kernel modules.
		"cgroup": map[string]any{"autoMount": map[string]any{"enabled": false}, "hostRoot": "/sys/fs/cgroup"},
		"securityContext": map[string]any{"capabilities": map[string]any{
			"ciliumAgent": []any{
				"CHOWN", "KILL", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN", "SYS_RESOURCE", "DAC_OVERRIDE", "FOWNER",
				"SETGID", "SETUID",
			},
			"cleanCiliumState": []any{"NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE"},
		}},
		// As "cilium install" has it: a second one finds no place in a cluster of one node.
		"operator": map[string]any{"replicas": 1, "rollOutPods": true},
		// Without it, changed values would wait for a restart of the agents.
		"rollOutCiliumPods": true,
	}, servicesValues(p)), p.CNIValues)
}

// servicesValues switch on what addresses for Services and gateways need.
func servicesValues(p *plan.Plan) map[string]any {
	on, values := map[string]any{"enabled": true}, map[string]any{}

	if slices.Contains(p.Addons, spec.AddonGatewayAPI) {
		values["gatewayAPI"] = on
	}

	switch lb := p.LoadBalancer; {
	case lb == nil:
	case lb.Mode == spec.LoadBalancerBGP:
		values["bgpControlPlane"] = on
	default:
		values["l2announcements"], values["externalIPs"] = on, on
	}

	return values
}
