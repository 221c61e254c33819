package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

const (
	addonsName = "addons-install"
	// addonsCLI applies the manifests of addons; it has kustomize.
	addonsCLI = "registry.k8s.io/kubectl:v1.34.3"
	addonDir  = "/addon"
	// addonsManager owns the fields that addons state. What others own is not taken from them: the API server refuses it.
	addonsManager = "talos-proxmox"
	// The files of an addon. The names are kustomize's and Go's.
	kustomizationFile, authoritiesFile = "kustomization.yaml", "authorities.pem"
)

// addonsOf are the addons there are.
var addonsOf = map[spec.Addon]addon{
	spec.AddonMetricsServer: {version: "0.8.1", urls: []string{
		rawGitHub + "alex1989hu/kubelet-serving-cert-approver/v0.11.0/deploy/standalone-install.yaml",
		"https://github.com/kubernetes-sigs/metrics-server/releases/download/v0.8.1/components.yaml",
	}},
	spec.AddonLonghorn: {
		version: "1.9.1", urls: []string{rawGitHub + "longhorn/longhorn/v1.9.1/deploy/longhorn.yaml"},
		patches: []addonPatch{privileged},
	},
	spec.AddonFlux: {
		version: "2.7.5", urls: []string{"https://github.com/fluxcd/flux2/releases/download/v2.7.5/install.yaml"},
	},
	spec.AddonArgoCD: {
		version: "3.2.1", namespace: "argocd",
		urls:    []string{rawGitHub + "argoproj/argo-cd/v3.2.1/manifests/install.yaml"},
		objects: []map[string]any{{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "argocd"}}},
	},
	spec.AddonProxmoxCSI: {
		version: "0.19.1",
		urls:    []string{rawGitHub + "sergelogvinov/proxmox-csi-plugin/v0.19.1/docs/deploy/proxmox-csi-plugin-release.yml"},
	},
	spec.AddonProxmoxCCM: {
		// Of its controllers, the one for nodes whose VM is gone: addresses and labels are the program's.
		version: "0.13.1",
		urls: []string{
			rawGitHub + "sergelogvinov/proxmox-cloud-controller-manager/v0.13.1/docs/deploy/cloud-controller-manager-talos.yml",
		},
	},
	spec.AddonLocalPath: {
		version: "0.0.32",
		urls:    []string{rawGitHub + "rancher/local-path-provisioner/v0.0.32/deploy/local-path-storage.yaml"},
		patches: []addonPatch{privileged, {"ConfigMap", "", map[string]any{"data": map[string]any{
			// Of Talos' root file system, only /var can be written. Volumes are mounted here, too.
			"config.json": `{"nodePathMap":[{"node":"DEFAULT_PATH_FOR_NON_LISTED_NODES","paths":["/var/mnt/local-path"]}]}`,
		}}}},
	},
	spec.AddonOpenEBS: {
		version: openEBS, urls: []string{
			rawGitHub + "openebs/dynamic-localpv-provisioner/v" + openEBS + "/deploy/kubectl/hostpath-operator.yaml",
			rawGitHub + "openebs/dynamic-localpv-provisioner/v" + openEBS + "/deploy/kubectl/openebs-hostpath-sc.yaml",
		},
		patches: []addonPatch{
			privileged,
			// The manifests of a release name images of no release.
			{"Deployment", "", map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{
					"name": "openebs-provisioner-hostpath", "image": "openebs/provisioner-localpv:" + openEBS, "env": []any{
						map[string]any{"name": "OPENEBS_IO_HELPER_IMAGE", "value": "openebs/linux-utils:" + openEBS},
						map[string]any{"name": "OPENEBS_IO_BASE_PATH", "value": "/var/mnt/openebs"},
						map[string]any{"name": "OPENEBS_IO_ENABLE_ANALYTICS", "value": "false"},
					},
				}},
			}}}}},
			{"StorageClass", "", map[string]any{"metadata": map[string]any{"annotations": map[string]any{
				"cas.openebs.io/config": "- name: StorageType\n  value: hostpath\n- name: BasePath\n  value: /var/mnt/openebs\n",
			}}}},
		},
	},
}

const openEBS = "4.0.0"

// longhornVolume has Longhorn keep its data on the volume that Talos mounts for it. The other settings are those of its
// manifest, which are one text with this one.
var longhornVolume = addonPatch{"ConfigMap", "longhorn-default-setting", map[string]any{"data": map[string]any{
	"default-setting.yaml": "priority-class: longhorn-critical\ndisable-revision-counter: true\n" +
		"default-data-path: /var/mnt/longhorn\n",
}}}

// privileged lets pods of a namespace have what Talos' default, the baseline, refuses them.
var privileged = addonPatch{"Namespace", "", map[string]any{"metadata": map[string]any{
	"labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged"},
}}}

// gatewayAPI are definitions alone, which Cilium looks for when it starts: Talos itself applies them, first of all.
const gatewayAPI = "https://github.com/kubernetes-sigs/gateway-api/releases/download/v" + plan.GatewayAPI +
	"/standard-install.yaml"

// URLs are the manifests of addons that Talos itself fetches.
func URLs(p *plan.Plan) []string {
	if slices.Contains(p.Addons, spec.AddonGatewayAPI) {
		return []string{mirrored(p, gatewayAPI)}
	}

	return nil
}

func mirrored(p *plan.Plan, url string) string {
	if p.ManifestMirror == "" {
		return url
	}

	return p.ManifestMirror + "/" + strings.TrimPrefix(url, "https://")
}

// jobs are the addons that jobs install, by name.
func jobs(p *plan.Plan) map[string]addon {
	all := map[string]addon{}

	for _, name := range p.Addons {
		a, there := addonsOf[name]
		if name == spec.AddonLonghorn && p.HasVolume(string(name)) {
			a.patches = append(slices.Clone(a.patches), longhornVolume)
		}

		if p.GitOps != nil && p.GitOps.Tool == name {
			a = withGitOps(a, p.GitOps)
		}

		if there {
			all[string(name)] = a
		}
	}

	if p.LoadBalancer != nil {
		all["load-balancer"] = loadBalancer(p)
	}

	return all
}

// install is the job that applies an addon, with its files. It is tried again until the kinds that the manifests define
// are there.
func (a addon) install(p *plan.Plan, name string) ([]runtime.Object, error) {
	kustomization := map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}

	var resources, patches []any

	for _, url := range a.urls {
		resources = append(resources, mirrored(p, url))
	}

	files := map[string]string{}

	for i, object := range a.objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return nil, err
		}

		file := fmt.Sprintf("object-%d.yaml", i+1)
		files[file], resources = string(text), append(resources, file)
	}

	for _, patch := range a.patches {
		// The target says which objects it is for; the name of a patch is not looked at.
		inline, err := yaml.Marshal(merged(patch.patch, map[string]any{
			"apiVersion": "v1", "kind": patch.kind, "metadata": map[string]any{"name": "any"},
		}))
		if err != nil {
			return nil, err
		}

		target := map[string]any{"kind": patch.kind}
		if patch.name != "" {
			target["name"] = patch.name
		}

		patches = append(patches, map[string]any{"target": target, "patch": string(inline)})
	}

	kustomization["resources"] = resources

	if patches != nil {
		kustomization["patches"] = patches
	}

	if a.namespace != "" {
		kustomization["namespace"] = a.namespace
	}

	text, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, err
	}

	files[kustomizationFile] = string(text)

	for _, ca := range p.TrustedCAs {
		files[authoritiesFile] += strings.TrimSpace(ca.Text) + "\n"
	}

	return install(addonsName, "install-"+name, a.version, files, addonJob(p, files))
}

func addonJob(p *plan.Plan, files map[string]string) batchv1.JobSpec {
	var (
		mounts []corev1.VolumeMount
		env    []corev1.EnvVar
	)

	// One by one: kustomize does not follow the links of a volume that is mounted as a whole.
	for _, file := range slices.Sorted(maps.Keys(files)) {
		mounts = append(mounts, corev1.VolumeMount{
			Name: "files", MountPath: addonDir + "/" + file, SubPath: file, ReadOnly: true,
		})
	}

	if files[authoritiesFile] != "" {
		env = append(env, corev1.EnvVar{Name: "SSL_CERT_DIR", Value: addonDir})
	}

	if p.Proxy != nil {
		env = append(env,
			corev1.EnvVar{Name: "HTTP_PROXY", Value: p.Proxy.HTTP}, corev1.EnvVar{Name: "HTTPS_PROXY", Value: p.Proxy.HTTPS},
			corev1.EnvVar{Name: "NO_PROXY", Value: strings.Join(p.NoProxy, ",")})
	}

	return batchv1.JobSpec{
		BackoffLimit: new(int32(jobAttempts)),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": addonsName}},
			Spec: corev1.PodSpec{
				ServiceAccountName: addonsName,
				RestartPolicy:      corev1.RestartPolicyOnFailure,
				// There may be no other nodes yet.
				Tolerations: []corev1.Toleration{{
					Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists,
				}},
				Containers: []corev1.Container{{
					Name: "apply", Image: addonsCLI, Env: env, VolumeMounts: mounts,
					Command: []string{
						"kubectl", "apply", "--server-side", "--field-manager", addonsManager, "--kustomize", addonDir,
					},
				}},
				Volumes: []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{},
				}}},
			},
		},
	}
}
