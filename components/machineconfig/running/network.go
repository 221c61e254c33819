package running

import (
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/spec"
)

// CheckNetwork refuses to give a control plane that runs another network: Talos removes no CNI, and what has
// addresses of the old networks of pods and services keeps them.
func CheckNetwork(running, wanted talosconfig.Provider) error {
	const remedy = "put it back; or, to migrate by hand, change it on the control planes with talosctl first"

	is, want := machineconfig.CNI(running), machineconfig.CNI(wanted)

	switch {
	case is == constants.FlannelCNI && want != is:
		return spec.Problem{
			Path: "cluster.cni.name", Rule: "does not change from flannel on a cluster that runs: Talos does not remove it, " +
				"and pods would have two networks", Value: want, Remedy: remedy,
		}
	case want == constants.FlannelCNI && want != is && installsCilium(running):
		return spec.Problem{
			Path: "cluster.cni.name", Rule: "does not change to flannel on a cluster that runs Cilium: nothing removes it, " +
				"and pods would have two networks", Value: want, Remedy: remedy,
		}
	}

	has := machineconfig.ClusterNetworks(running)

	if want := machineconfig.ClusterNetworks(wanted); want != has {
		return spec.Problem{
			Path: "cluster.patches", Rule: "the networks of pods and services do not change on a cluster that runs, which " +
				"has " + has, Value: want, Remedy: remedy,
		}
	}

	return nil
}

// installsCilium says whether a control plane has Cilium among its manifests: that of the program, or one that an
// operator has named so.
func installsCilium(cfg talosconfig.Provider) bool {
	var names []string
	for _, m := range cfg.K8sInlineManifestConfigs() {
		names = append(names, m.Name())
	}

	for _, m := range cfg.K8sExternalManifestConfigs() {
		names = append(names, m.URL())
	}

	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(strings.ToLower(name), manifests.Cilium)
	})
}
