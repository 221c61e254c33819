package patches

import (
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// firewall is Talos' own: what a pool's nodes let in, and nothing else. ICMP comes in by itself, slowly.
func firewall(pool plan.PlannedPool) []config.Document {
	if pool.Ingress == nil {
		return nil
	}

	closed := network.NewDefaultActionConfigV1Alpha1()
	closed.Ingress = nethelpers.DefaultActionBlock
	docs := []config.Document{closed}

	for _, in := range pool.Ingress {
		rule := network.NewRuleConfigV1Alpha1()
		rule.MetaName = in.Name

		switch in.Protocol {
		case spec.ProtocolTCP:
			rule.PortSelector.Protocol = nethelpers.ProtocolTCP
		case spec.ProtocolUDP:
			rule.PortSelector.Protocol = nethelpers.ProtocolUDP
		case spec.ProtocolICMP:
			continue
		}

		for _, ports := range in.Ports {
			rule.PortSelector.Ports = append(rule.PortSelector.Ports, network.PortRange{Lo: ports.First, Hi: ports.Last})
		}

		for _, from := range in.From {
			rule.Ingress = append(rule.Ingress, network.IngressRule{Subnet: from})
		}

		docs = append(docs, rule)
	}

	return docs
}
