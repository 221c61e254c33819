package plan

import (
	"net/netip"
	"slices"
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

// openPrefix begins the names of what the operator opens.
const openPrefix = "open-"

// servicesComment is the comment of rules for the addresses of Services.
const servicesComment = "services"

// ruleComments are the comments of rules that no operator has named.
var ruleComments = []string{
	"apid", "trustd", "kubelet", "kube-apiserver", "etcd", "icmp", "ssh", "flannel-vxlan", "cilium-vxlan",
	"cilium-health", "cilium-hubble", "metallb-tcp", "metallb-udp", "bgp", servicesComment,
}

// OpenName is the name of what firewall.open opens by a name of the operator's.
func OpenName(name string) string { return openPrefix + name }

// WritesRule says whether this program writes rules with a comment: those without one, and with others, are not its
// own.
func WritesRule(comment string) bool {
	return strings.HasPrefix(comment, openPrefix) || slices.Contains(ruleComments, comment)
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

			rule := FirewallRule{Protocol: string(in.Protocol), Comment: in.Name}

			if in.Protocol == spec.ProtocolICMP && v6 {
				rule.Protocol = "ipv6-icmp"
			}

			var ports []string
			for _, span := range in.Ports {
				ports = append(ports, strings.ReplaceAll(span.String(), "-", ":"))
			}

			for _, rule.Sources = range lists(sources, characters, mostCharacters) {
				for _, rule.Ports = range lists(ports, numbers, mostNumbers) {
					rules = append(rules, rule)
				}
			}
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
			rule := FirewallRule{Protocol: string(protocol), Comment: servicesComment}

			for _, rule.Sources = range lists(from, characters, mostCharacters) {
				for _, rule.Destinations = range lists(to, characters, mostCharacters) {
					rules = append(rules, rule)
				}
			}
		}
	}

	return rules
}

// What a list of a rule can hold (pve-firewall: Firewall.pm).
const (
	// mostNumbers is for ports, where a range is two numbers.
	mostNumbers = 15
	// mostCharacters is for addresses, with a comma after each.
	mostCharacters = 512 + 1
)

func numbers(ports string) int { return 1 + strings.Count(ports, ":") }

func characters(address string) int { return len(address) + 1 }

// lists are the elements with commas between, in their order, in as many lists as they need: at least one.
func lists(elements []string, size func(string) int, most int) []string {
	var all []string

	first, held := 0, 0

	for i, element := range elements {
		if held+size(element) > most {
			all = append(all, strings.Join(elements[first:i], ","))
			first, held = i, 0
		}

		held += size(element)
	}

	return append(all, strings.Join(elements[first:], ","))
}

func source(from netip.Prefix) string {
	if from.IsSingleIP() {
		return from.Addr().String()
	}

	return from.String()
}
