package plan

import (
	"net/netip"
	"strings"

	"talos-proxmox/components/spec"
)

// FirewallRule is a rule of Proxmox VE's firewall of a VM, in its own words. It lets something in; what no rule lets in
// is dropped, and everything may go out.
type FirewallRule struct {
	// Protocol is "tcp", "udp", "icmp" or "ipv6-icmp".
	Protocol string
	// Ports are "80" or "30000:32767", with commas between; empty for ICMP.
	Ports string
	// Sources are networks and addresses with commas between, of one family.
	Sources string
	// Destinations likewise; empty for all.
	Destinations string
	Comment      string
}

// FirewallRules are the rules for the VMs of a pool, in order; none without firewalls.
func (p PlannedPool) FirewallRules() []FirewallRule {
	var rules []FirewallRule

	for _, in := range p.Ingress {
		// Proxmox VE takes no list with both families.
		for _, v6 := range []bool{false, true} {
			var sources []string

			for _, from := range in.From {
				if from.Addr().Is6() == v6 {
					sources = append(sources, source(from))
				}
			}

			if len(sources) == 0 {
				continue
			}

			rule := FirewallRule{Protocol: string(in.Protocol), Sources: strings.Join(sources, ","), Comment: in.Name}

			if in.Protocol == spec.ProtocolICMP && v6 {
				rule.Protocol = "ipv6-icmp"
			}

			var ports []string
			for _, span := range in.Ports {
				ports = append(ports, strings.ReplaceAll(span.String(), "-", ":"))
			}

			rule.Ports = strings.Join(ports, ",")
			rules = append(rules, rule)
		}
	}

	return append(rules, p.toServices()...)
}

// toServices lets in what comes to the addresses of Services. They are no node's own, and what is not for the node
// itself passes Talos' firewall.
func (p PlannedPool) toServices() []FirewallRule {
	var rules []FirewallRule

	if p.LoadBalancer == nil {
		return nil
	}

	for _, v6 := range []bool{false, true} {
		var from, to []string

		for _, client := range p.LoadBalancer.Clients {
			if client.Addr().Is6() == v6 {
				from = append(from, source(client))
			}
		}

		for _, span := range p.LoadBalancer.Ranges {
			for _, prefix := range span.Prefixes() {
				if prefix.Addr().Is6() == v6 {
					to = append(to, source(prefix))
				}
			}
		}

		if len(from) == 0 || len(to) == 0 {
			continue
		}

		for _, protocol := range []spec.Protocol{spec.ProtocolTCP, spec.ProtocolUDP} {
			rules = append(rules, FirewallRule{
				Protocol: string(protocol), Sources: strings.Join(from, ","), Destinations: strings.Join(to, ","),
				Comment: "services",
			})
		}
	}

	return rules
}

func source(from netip.Prefix) string {
	if from.IsSingleIP() {
		return from.Addr().String()
	}

	return from.String()
}
