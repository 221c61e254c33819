package machineconfig

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/kubecomponents"
	"talos-proxmox/components/plan"
)

// libraryTalos is the minor version of Talos whose library of the kubelet is linked: later ones know more fields.
const libraryTalos = 12

// deniedArgs are the arguments of a component that Talos sets and lets no configuration change: with one of them, it
// does not render the component (Talos: controllers/k8s/control_plane_static_pod.go, kubelet_spec.go; from 1.14 on
// control_plane_final.go). Each is denied from a minor version on.
var deniedArgs = map[string]map[uint64]string{
	kubeAPIServer: {
		0: "etcd-servers client-ca-file requestheader-client-ca-file proxy-client-cert-file proxy-client-key-file " +
			"encryption-provider-config etcd-cafile etcd-certfile etcd-keyfile kubelet-client-certificate " +
			"kubelet-client-key service-account-key-file service-account-signing-key-file tls-cert-file " +
			"tls-private-key-file",
		9:  "authorization-config",
		14: "tls-min-version",
	},
	"kube-controller-manager": {
		0: "cluster-signing-cert-file cluster-signing-key-file authentication-kubeconfig authorization-kubeconfig " +
			"root-ca-file service-account-private-key-file",
	},
	"kube-scheduler": {0: "kubeconfig authentication-kubeconfig authorization-kubeconfig config"},
	kubelet: {
		0: "bootstrap-kubeconfig kubeconfig container-runtime container-runtime-endpoint config cert-dir",
	},
}

const (
	kubeAPIServer = "kube-apiserver"
	kubelet       = "kubelet"
)

// argsDenied says that Talos denies an argument of a component.
func argsDenied(component, argument string, talos uint64) bool {
	for since, names := range deniedArgs[component] {
		if since <= talos && slices.Contains(strings.Fields(names), argument) {
			return true
		}
	}

	return false
}

// component is one of Kubernetes, with the arguments that a configuration adds.
type component struct {
	name, key string
	args      map[string][]string
}

// components are those that Talos starts on a node.
func components(cfg talosconfig.Provider) []component {
	all := []component{{kubelet, "machine.kubelet.extraArgs", cfg.K8sKubeletConfig().ExtraArgs()}}

	if !cfg.Machine().Type().IsControlPlane() {
		return all
	}

	return append(
		all,
		component{kubeAPIServer, "cluster.apiServer.extraArgs", cfg.K8sAPIServerConfig().ExtraArgs()},
		component{
			"kube-controller-manager", "cluster.controllerManager.extraArgs", cfg.K8sControllerManagerConfig().ExtraArgs(),
		},
		component{"kube-scheduler", "cluster.scheduler.extraArgs", cfg.K8sSchedulerConfig().ExtraArgs()},
		component{"kube-proxy", "cluster.proxy.extraArgs", cfg.K8sProxyConfig().ExtraArgs()},
	)
}

// startFaults are the settings of a node with which a component of Kubernetes, or Talos, does not start. They quote no
// values.
func startFaults(p *plan.Plan, cfg talosconfig.Provider) []string {
	faults := slices.Concat(argFaults(p, cfg), fileFaults(cfg))

	unknown, wrong := kubecomponents.KubeletFaults(cfg.K8sKubeletConfig().ExtraConfig())
	for _, field := range wrong {
		faults = append(faults, kubeletField(field)+"KubeletConfiguration has another type of value there")
	}

	if p.Talos != "" && plan.Minor(p.Talos) <= libraryTalos {
		for _, field := range unknown {
			faults = append(faults, kubeletField(field)+"KubeletConfiguration has no such field")
		}
	}

	if cfg.Machine().Type().IsControlPlane() {
		for _, fault := range kubecomponents.AuditFaults(cfg.K8sAuditPolicyConfig().Configuration()) {
			faults = append(faults, "kube-apiserver does not start with cluster.apiServer.auditPolicy: "+fault)
		}
	}

	return faults
}

func kubeletField(field string) string {
	return "the kubelet does not start with machine.kubelet.extraConfig." + field + ": "
}

// argFaults are arguments that Talos denies, and feature gates that the version of Kubernetes does not know.
func argFaults(p *plan.Plan, cfg talosconfig.Provider) []string {
	var faults []string

	features := func(component, key string, names []string) {
		for _, gate := range names {
			if minor, removed := kubecomponents.FeatureRemoved(gate, p.Kubernetes); removed {
				faults = append(faults, fmt.Sprintf("%s does not start with the feature gate %s in %s: Kubernetes 1.%d removed it",
					component, gate, key, minor))
			}
		}
	}

	for _, c := range components(cfg) {
		for _, name := range slices.Sorted(maps.Keys(c.args)) {
			if argsDenied(c.name, name, plan.Minor(p.Talos)) {
				faults = append(faults, fmt.Sprintf("%s does not start %s with %s.%s: it sets that argument itself",
					strings.TrimSpace("Talos "+p.Talos), c.name, c.key, name))
			}
		}

		for _, value := range c.args[kubecomponents.FeaturesFlag] {
			features(c.name, c.key, kubecomponents.Features(value))
		}
	}

	configured, _ := cfg.K8sKubeletConfig().ExtraConfig()["featureGates"].(map[string]any)
	features(kubelet, "machine.kubelet.extraConfig", slices.Sorted(maps.Keys(configured)))

	return faults
}

// fileFaults are files that Talos does not write: it fails to boot (Talos: WriteUserFiles).
func fileFaults(cfg talosconfig.Provider) []string {
	raw := cfg.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil {
		return nil
	}

	var faults []string

	for _, f := range raw.MachineConfig.MachineFiles {
		first, _, _ := strings.Cut(strings.TrimLeft(f.FilePath, "/"), "/")

		switch {
		case !slices.Contains([]string{"create", "append", "overwrite"}, f.FileOp):
			faults = append(faults, "Talos does not boot with machine.files of "+f.FilePath+
				": op must be create, append or overwrite")
		case f.FileOp != "create" || first == "var" || path.Dir(f.FilePath) == constants.ManifestsDirectory,
			f.FilePath == path.Join("/etc", constants.CRICustomizationConfigPart):
		default:
			faults = append(faults, "Talos does not boot with machine.files of "+f.FilePath+
				": op create is only for files below /var")
		}
	}

	return faults
}

// startDoubts are settings of which it is not known whether a node starts with them, or uses them.
func startDoubts(p *plan.Plan, node plan.Node, cfg talosconfig.Provider) []string {
	var doubts []string

	if plan.Minor(p.Talos) > libraryTalos {
		unknown, _ := kubecomponents.KubeletFaults(cfg.K8sKubeletConfig().ExtraConfig())
		for _, field := range unknown {
			doubts = append(doubts, "machine.kubelet.extraConfig."+field+" is not a field of KubeletConfiguration in "+
				"Kubernetes 1.35: the kubelet does not start if Talos "+p.Talos+" does not know it either")
		}
	}

	doubts = slices.Concat(doubts, pluginDoubts(cfg), sealingDoubts(p, node, cfg), proxyDoubts(p, cfg))

	// A later contract has Talos refuse them.
	if len(cfg.Machine().Install().ExtraKernelArgs()) > 0 && bootsUKI(p, node) {
		doubts = append(doubts, "machine.install.extraKernelArgs has no effect on a node that Talos "+p.Talos+
			" is installed on with UEFI: the kernel arguments are in its image")
	}

	return doubts
}

// bootsUKI says that Talos installs systemd-boot on a node, with the kernel arguments of the image: with UEFI since
// Talos 1.10, and before only with SecureBoot.
func bootsUKI(p *plan.Plan, node plan.Node) bool {
	return node.Firmware == "ovmf" && plan.Minor(p.Talos) >= 10 || p.PoolOf(node).Image.SecureBoot
}

// pluginDoubts are configurations of admission plugins that the API server does not run, and so ignores.
func pluginDoubts(cfg talosconfig.Provider) []string {
	raw := cfg.RawV1Alpha1()
	if raw == nil || raw.ClusterConfig == nil || raw.ClusterConfig.APIServerConfig == nil {
		return nil
	}

	configured := map[string]bool{}
	for _, plugin := range raw.ClusterConfig.APIServerConfig.AdmissionControlConfig {
		configured[plugin.PluginName] = true
	}

	enabled := strings.Split(strings.Join(cfg.K8sAPIServerConfig().ExtraArgs()[kubecomponents.EnablePlugins], ","), ",")

	var doubts []string

	for _, name := range kubecomponents.DisabledPlugins(maps.Keys(configured)) {
		if !slices.Contains(enabled, name) {
			doubts = append(doubts, "kube-apiserver ignores the configuration of the admission plugin "+name+
				": cluster.apiServer.extraArgs.enable-admission-plugins does not name it")
		}
	}

	return doubts
}
