package talos

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// publishFirewall shows the ingress chain that the configuration asks for, as Talos builds it (Talos:
// controllers/network/nftables_chain_config.go, but for the rules that drop what no client sends). The lab holds it and
// lets everybody in: nothing of it goes over a network that could be closed.
func (n *node) publishFirewall(b *board) {
	cfg := n.config()
	rules := cfg.NetworkRules()

	if rules.DefaultAction() == nethelpers.DefaultActionAccept && rules.Rules() == nil {
		return
	}

	show(b, network.NewNfTablesChain(network.NamespaceName, "ingress"), func(s *network.NfTablesChainSpec) {
		s.Type, s.Hook, s.Priority = nethelpers.ChainTypeFilter, nethelpers.ChainHookInput, nethelpers.ChainPriorityMangle+10
		s.Policy = nethelpers.VerdictAccept
		s.Rules = []network.NfTablesRule{accept(network.NfTablesRule{MatchIIfName: &network.NfTablesIfNameMatch{
			InterfaceNames: []string{"lo", constants.SideroLinkName, constants.KubeSpanLinkName},
			Operator:       nethelpers.OperatorEqual,
		}})}

		block := rules.DefaultAction() == nethelpers.DefaultActionBlock
		if block {
			s.Policy = nethelpers.VerdictDrop
			s.Rules = append(s.Rules, always(clusterOf(cfg))...)
		}

		for _, r := range rules.Rules() {
			var ports []network.PortRange
			for _, p := range r.PortRanges() {
				ports = append(ports, network.PortRange{Lo: p[0], Hi: p[1]})
			}

			rule := network.NfTablesRule{
				MatchSourceAddress: &network.NfTablesAddressMatch{
					IncludeSubnets: r.Subnets(), ExcludeSubnets: r.ExceptSubnets(),
					Invert: !block,
				},
				MatchLayer4: &network.NfTablesLayer4Match{
					Protocol: r.Protocol(), MatchDestinationPort: &network.NfTablesPortMatch{Ranges: ports},
				},
			}

			if block {
				s.Rules = append(s.Rules, accept(rule))
			} else {
				rule.AnonCounter, rule.Verdict = true, new(nethelpers.VerdictDrop)
				s.Rules = append(s.Rules, rule)
			}
		}
	})
}

func accept(r network.NfTablesRule) network.NfTablesRule {
	r.AnonCounter, r.Verdict = true, new(nethelpers.VerdictAccept)

	return r
}

// always is what comes in although nothing else does: answers, ICMP, and traffic of pods and services.
func always(c *v1alpha1.ClusterConfig) []network.NfTablesRule {
	pods := slices.Concat(c.PodCIDRs(), c.ServiceCIDRs())
	within := &network.NfTablesAddressMatch{IncludeSubnets: pods}
	rules := []network.NfTablesRule{accept(network.NfTablesRule{MatchConntrackState: &network.NfTablesConntrackStateMatch{
		States: []nethelpers.ConntrackState{nethelpers.ConntrackStateEstablished, nethelpers.ConntrackStateRelated},
	}})}

	for _, protocol := range []nethelpers.Protocol{nethelpers.ProtocolICMP, nethelpers.ProtocolICMPv6} {
		rules = append(rules, accept(network.NfTablesRule{
			MatchLayer4: &network.NfTablesLayer4Match{Protocol: protocol},
			MatchLimit:  &network.NfTablesLimitMatch{PacketRatePerSecond: 5},
		}))
	}

	return append(rules, accept(network.NfTablesRule{MatchSourceAddress: within, MatchDestinationAddress: within}))
}
