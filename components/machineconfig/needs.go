package machineconfig

import (
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/plan"
)

// need is what Talos lets a patch take away and this cluster cannot do without.
type need struct {
	rule   string
	broken func(talosconfig.Provider) bool
}

func needs(p *plan.Plan) []need {
	all := []need{{
		"KubeSpan needs the discovery service, which cluster.discovery does not use",
		func(cfg talosconfig.Provider) bool {
			return cfg.Machine().Network().KubeSpan().Enabled() && !cfg.Cluster().Discovery().Registries().Service().Enabled()
		},
	}}

	if p.CNI == plan.Cilium || p.EndpointMode == plan.KubeVIP {
		all = append(all, need{
			"KubePrism must stay on, at its own port: that is how Cilium and kube-vip reach the Kubernetes API",
			func(cfg talosconfig.Provider) bool {
				k := cfg.Machine().Features().KubePrism()

				return !k.Enabled() || k.Port() != constants.DefaultKubePrismPort
			},
		})
	}

	return all
}
