package machineconfig

import (
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/spec"
)

// CheckRunningNetwork refuses to give a control plane that runs another network: Talos removes no CNI, and what has
// addresses of the old networks of pods and services keeps them.
func CheckRunningNetwork(running, wanted talosconfig.Provider) error {
	const remedy = "put it back; or, to migrate by hand, change it on the control planes with talosctl first"

	if is, want := CNI(running), CNI(wanted); is == constants.FlannelCNI && want != is {
		return spec.Problem{
			Path: "cluster.cni.name", Rule: "does not change from flannel on a cluster that runs: Talos does not remove it, " +
				"and pods would have two networks", Value: want, Remedy: remedy,
		}
	}

	pods, services := clusterNetworksOf(running)
	wantedPods, wantedServices := clusterNetworksOf(wanted)
	is := strings.Join(prefixTexts(slices.Concat(pods, services)), ", ")

	if want := strings.Join(prefixTexts(slices.Concat(wantedPods, wantedServices)), ", "); want != is {
		return spec.Problem{
			Path: "cluster.patches", Rule: "the networks of pods and services do not change on a cluster that runs, which " +
				"has " + is, Value: want, Remedy: remedy,
		}
	}

	return nil
}
