package patches

import (
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/kubecomponents"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// addPlatform adds what those who work on the cluster asked for to the configuration of a pool.
func addPlatform(p *plan.Plan, pool plan.PlannedPool, c *v1alpha1.Config) error {
	if slices.Contains(p.Addons, spec.AddonMetricsServer) {
		// Without it, kubelets serve with certificates that nothing can verify.
		c.MachineConfig.MachineKubelet.KubeletExtraArgs = meta.Args{
			"rotate-server-certificates": meta.NewArgValue("true", nil),
		}
	}

	if slices.Contains(p.Addons, spec.AddonLonghorn) {
		// Longhorn's pods mount volumes there, which kubelets must see.
		c.MachineConfig.MachineKubelet.KubeletExtraMounts = []v1alpha1.ExtraMount{{
			Destination: longhornDir, Type: "bind", Source: longhornDir, Options: []string{"bind", "rshared", "rw"},
		}}
	}

	if pool.Role != spec.RoleControlPlane {
		return nil
	}

	c.ClusterConfig.AllowSchedulingOnControlPlanes = explicit(p.SchedulableControls)

	return addAPIServer(p.APIServer, c.MachineConfig, c.ClusterConfig.APIServerConfig)
}

// longhornDir is where Longhorn keeps its data.
const longhornDir = "/var/lib/longhorn"

// announced takes off the label that Talos gives control planes.
const announced = "machine:\n  nodeLabels:\n    " + constants.LabelExcludeFromExternalLB + ":\n      $patch: delete\n"

// authenticationFile is where Talos keeps the operator's configuration, and where the API server reads it.
const (
	authenticationDir  = "/var/etc/kubernetes-authentication"
	authenticationFile = authenticationDir + "/config.yaml"
)

func addAPIServer(a spec.APIServer, m *v1alpha1.MachineConfig, s *v1alpha1.APIServerConfig) error {
	args := plan.APIServerArgs(a)

	if a.Authentication != nil {
		args["authentication-config"] = authenticationFile
		s.ExtraVolumesConfig = []v1alpha1.VolumeMountConfig{{
			VolumeHostPath: authenticationDir, VolumeMountPath: authenticationDir, VolumeReadOnly: true,
		}}
		// The API server runs as a user of its own.
		m.MachineFiles = []*v1alpha1.MachineFile{{ // Talos has no other way up to 1.13
			FileContent: a.Authentication.Text, FilePermissions: 0o444, FilePath: authenticationFile, FileOp: "create",
		}}
	}

	// Talos adds them to its own.
	if disabled := kubecomponents.DisabledPlugins(maps.Keys(a.Admission)); len(disabled) > 0 {
		args[kubecomponents.EnablePlugins] = strings.Join(disabled, ",")
	}

	for name, value := range args {
		if s.ExtraArgsConfig == nil {
			s.ExtraArgsConfig = meta.Args{}
		}

		s.ExtraArgsConfig[name] = meta.NewArgValue(value, nil)
	}

	if a.Audit != nil {
		if err := yaml.Unmarshal([]byte(a.Audit.Text), &s.AuditPolicyConfig.Object); err != nil {
			return err
		}
	}

	for _, name := range slices.Sorted(maps.Keys(a.Admission)) {
		configuration := a.Admission[name]
		if name == kubecomponents.PodSecurity {
			configuration = withoutSystem(configuration)
		}

		s.AdmissionControlConfig = append(s.AdmissionControlConfig, &v1alpha1.AdmissionPluginConfig{
			PluginName: name, PluginConfiguration: meta.Unstructured{Object: configuration},
		})
	}

	return nil
}

// kubeSystem is the namespace of Kubernetes' own pods.
const kubeSystem = "kube-system"

// withoutSystem is a configuration of PodSecurity without the exemption of kube-system. Talos has it already and adds
// others to it, and Kubernetes refuses one that is there twice.
func withoutSystem(configuration map[string]any) map[string]any {
	exemptions, _ := configuration["exemptions"].(map[string]any)
	namespaces, _ := exemptions["namespaces"].([]any)

	if !slices.Contains(namespaces, any(kubeSystem)) {
		return configuration
	}

	exemptions, configuration = maps.Clone(exemptions), maps.Clone(configuration)
	exemptions["namespaces"] = slices.DeleteFunc(slices.Clone(namespaces), func(namespace any) bool {
		return namespace == kubeSystem
	})
	configuration["exemptions"] = exemptions

	return configuration
}
