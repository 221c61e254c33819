package machineconfig

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
)

// walled is a production cluster: firewalls are set up because it is one.
func walled(versions spec.Versions, cni spec.CNI) spec.Spec {
	s := plantest.Atlas(versions)
	s.Environment = spec.EnvironmentProduction
	s.Cluster.CNI = cni
	s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.20"}
	s.Firewall.APIFrom = []string{"192.168.7.0/24"}
	s.Firewall.Open = []spec.IngressRule{
		{Name: "web", Ports: "443, 80", From: []string{"0.0.0.0/0", "::/0"}, Pools: []string{"worker"}},
		{Name: "game", Ports: "30000-30010", Protocol: spec.ProtocolUDP, Pools: []string{"worker"}},
	}
	s.Pools = map[string]spec.Pool{
		"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"},
		"worker":  {Role: spec.RoleWorker, Count: new(2), Addresses: "10.0.0.21-22"},
	}

	return s
}

var (
	withFlannel = spec.CNI{}
	withCilium  = spec.CNI{Name: spec.CNICilium, Version: "1.18.4", KubeProxy: new(false)}
)

// TestFirewalls: the rules that reach Talos and Proxmox VE with production settings, for each role.
func TestFirewalls(t *testing.T) {
	for name, cni := range map[string]spec.CNI{"flannel": withFlannel, "cilium": withCilium} {
		var texts []string

		for _, versions := range []spec.Versions{plantest.Talos111, plantest.Talos112} {
			p := plantest.New(t, walled(versions, cni))

			var b strings.Builder

			for _, pool := range p.Pools {
				fmt.Fprintf(&b, "# Talos, pool %s\n", pool.Name)

				for i, text := range firewallPatches(t, p, pool) {
					if i > 0 {
						b.WriteString("---\n")
					}

					b.WriteString(text)
				}

				fmt.Fprintf(&b, "# Proxmox VE, pool %s\n", pool.Name)

				for _, r := range pool.FirewallRules() {
					if !plan.WritesRule(r.Comment) {
						t.Errorf("the program does not know its own rule %q", r.Comment)
					}

					fmt.Fprintf(&b, "%s: {protocol: %s, ports: %q, sources: %q}\n", r.Comment, r.Protocol, r.Ports, r.Sources)
				}
			}

			if warnings, err := Check(p); err != nil || len(warnings) > 0 {
				t.Errorf("Talos does not take them: %v %v", warnings, err)
			}

			texts = append(texts, b.String())
		}

		golden.Check(t, filepath.Join("testdata", "firewall-"+name+".yaml"), texts[0])

		if texts[0] != texts[1] {
			t.Error("they differ between the versions of Talos")
		}
	}
}

// TestPatchesBehindFirewalls: what a patch makes necessary must be let in too.
func TestPatchesBehindFirewalls(t *testing.T) {
	const (
		kubeSpan = "machine:\n  network:\n    kubespan: {enabled: true}\n"
		pods     = "cluster:\n  network:\n    podSubnets: [10.112.0.0/16]\n"
		refused  = "the configuration has 1 problem:\n  - cluster.patches[0]: "
		given    = " (given: own.yaml, for atlas-control-1); correct the patch"
	)

	wireguard := spec.IngressRule{Name: "kubespan", Protocol: spec.ProtocolUDP, Ports: "51820"}
	others := spec.IngressRule{Name: "pods", Ports: "6443, 10250", From: []string{"10.96.0.0/11"}}

	for name, test := range map[string]struct {
		patch string
		open  []spec.IngressRule
		want  string
	}{
		"KubeSpan": {kubeSpan, nil, refused +
			"KubeSpan needs UDP port 51820 between nodes, which the firewalls block unless firewall.open allows " +
			"it" + given},
		"KubeSpan, opened": {kubeSpan, []spec.IngressRule{wireguard}, ""},
		"other pods": {
			pods,
			[]spec.IngressRule{wireguard},
			refused + "pods of another network than 10.244.0.0/16 cannot reach ports 6443 and 10250, " +
				"unless firewall.open allows them" + given,
		},
		"other pods, opened": {pods, []spec.IngressRule{others}, ""},
		"neither":            {"machine:\n  sysctls: {vm.max_map_count: \"262144\"}\n", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := walled(plantest.Talos112, withFlannel)
			s.Firewall.Open = test.open
			s.Cluster.Patches = []spec.Patch{{Path: "cluster.patches[0]", Origin: "own.yaml", Text: test.patch}}

			got := ""
			if _, err := Check(plantest.New(t, s)); err != nil {
				got = err.Error()
			}

			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestNoFirewall: a lab has none.
func TestNoFirewall(t *testing.T) {
	s := walled(plantest.Talos112, withFlannel)
	s.Environment = spec.EnvironmentLab

	p := plantest.New(t, s)

	for _, pool := range p.Pools {
		if patches, rules := firewallPatches(t, p, pool), pool.FirewallRules(); len(patches) > 0 || rules != nil {
			t.Error(patches, rules)
		}
	}
}

// firewallPatches are the patches of a pool that set up the firewall of Talos.
func firewallPatches(t *testing.T, p *plan.Plan, pool plan.PlannedPool) []string {
	t.Helper()

	all, err := Patches(p, pool)
	if err != nil {
		t.Fatal(err)
	}

	return slices.DeleteFunc(all, func(text string) bool {
		return !strings.Contains(text, "kind: NetworkDefaultActionConfig\n") && !strings.Contains(text, "kind: NetworkRuleConfig\n")
	})
}

// wire is something that goes over the network to a node.
type wire struct {
	from     string // an address
	to       spec.Role
	protocol string
	port     uint16
}

// The addresses of one of each.
const (
	aControl, anotherControl, aWorker = "10.0.0.11", "10.0.0.12", "10.0.0.21"
	aPod, operator, outsider          = "10.244.3.7", "192.168.7.30", "203.0.113.9"
)

// TestNothingNeededIsClosed holds both firewalls against the ports that Talos and Kubernetes document, and against what
// no one needs.
func TestNothingNeededIsClosed(t *testing.T) {
	const control, worker = spec.RoleControlPlane, spec.RoleWorker

	// Talos: Network Connectivity. apid is for talosctl and control planes, trustd for workers.
	needed := []wire{
		{operator, control, "tcp", 50000},
		{operator, worker, "tcp", 50000},
		{aControl, worker, "tcp", 50000},
		{anotherControl, control, "tcp", 50000},
		{aWorker, control, "tcp", 50001},
		{anotherControl, control, "tcp", 50001},
	}
	// Kubernetes: Ports and Protocols. The API is for all, etcd for API servers and members, the kubelet for the control
	// plane.
	for _, from := range []string{operator, aControl, anotherControl, aWorker, aPod} {
		needed = append(needed, wire{from, control, "tcp", 6443})
	}

	needed = append(needed,
		wire{aControl, control, "tcp", 2379}, wire{anotherControl, control, "tcp", 2380},
		wire{aControl, worker, "tcp", 10250}, wire{anotherControl, control, "tcp", 10250}, wire{aPod, worker, "tcp", 10250},
		wire{aPod, control, "tcp", 10250},
	)

	cnis := map[string]struct {
		cni   spec.CNI
		ports []wire // from every node to every node
	}{
		// Talos: Ingress Firewall.
		"flannel": {withFlannel, []wire{{protocol: "udp", port: 4789}}},
		// Cilium: System Requirements, Firewall Rules, of VXLAN with health checks and Hubble.
		"cilium": {withCilium, []wire{
			{protocol: "udp", port: 8472},
			{protocol: "tcp", port: 4240},
			{protocol: "tcp", port: 4244},
			{protocol: "icmp"},
		}},
	}

	// What serves the machine itself, what is for others, and what is for none.
	unneeded := []wire{
		{aWorker, control, "tcp", 2379},
		{aPod, control, "tcp", 2380},
		{operator, control, "tcp", 2379},
		{operator, worker, "tcp", 10250},
		{outsider, control, "tcp", 50000},
		{outsider, worker, "tcp", 50000},
		{outsider, control, "tcp", 6443},
		{outsider, control, "tcp", 50001},
		{aWorker, worker, "tcp", 6443},
		{aWorker, worker, "tcp", 50001},
		{aControl, control, "tcp", 10257},
		{aControl, control, "tcp", 10259},
		{aControl, worker, "tcp", 10249},
		{aWorker, worker, "tcp", 7445},
		{outsider, worker, "tcp", 30000},
		{aWorker, control, "udp", 51820},
		{outsider, control, "tcp", 443},
		{operator, worker, "udp", 30000},
	}

	for name, c := range cnis {
		for _, versions := range []spec.Versions{plantest.Talos111, plantest.Talos112} {
			t.Run(name+" "+versions.Talos, func(t *testing.T) {
				p := plantest.New(t, walled(versions, c.cni))
				all := append(slices.Clone(needed), wire{outsider, worker, "tcp", 443}, wire{"2001:db8::1", worker, "tcp", 80},
					wire{aControl, worker, "udp", 30010})

				for _, w := range c.ports {
					for _, from := range []string{aControl, anotherControl, aWorker} {
						all = append(all, wire{from, control, w.protocol, w.port}, wire{from, worker, w.protocol, w.port})
					}
				}

				for _, pool := range p.Pools {
					cfg := fullConfiguration(t, p, pool.Nodes[0])

					for _, w := range all {
						if w.to == pool.Role && (!talosLetsIn(cfg, w) || !proxmoxLetsIn(t, pool, w)) {
							t.Errorf("closed: %+v (Talos %t, Proxmox VE %t)", w, talosLetsIn(cfg, w), proxmoxLetsIn(t, pool, w))
						}
					}

					for _, w := range unneeded {
						if w.to == pool.Role && (talosLetsIn(cfg, w) || proxmoxLetsIn(t, pool, w)) {
							t.Errorf("open: %+v (Talos %t, Proxmox VE %t)", w, talosLetsIn(cfg, w), proxmoxLetsIn(t, pool, w))
						}
					}
				}
			})
		}
	}
}

// talosLetsIn reads the configuration as Talos does (Talos: controllers/network/nftables_chain_config.go).
func talosLetsIn(cfg talosconfig.Provider, w wire) bool {
	rules := cfg.NetworkRules()

	return rules.DefaultAction() == nethelpers.DefaultActionAccept || w.protocol == "icmp" ||
		slices.ContainsFunc(rules.Rules(), func(r config.NetworkRule) bool {
			from := netip.MustParseAddr(w.from)

			return r.Protocol().String() == w.protocol &&
				slices.ContainsFunc(r.PortRanges(), func(p [2]uint16) bool { return p[0] <= w.port && w.port <= p[1] }) &&
				slices.ContainsFunc(r.Subnets(), func(s netip.Prefix) bool { return s.Contains(from) })
		})
}

// proxmoxLetsIn reads the rules as Proxmox VE does.
func proxmoxLetsIn(t *testing.T, pool plan.PlannedPool, w wire) bool {
	t.Helper()

	for _, r := range pool.FirewallRules() {
		if r.Protocol != w.protocol {
			continue
		}

		port, source := w.protocol == "icmp", false

		for part := range strings.SplitSeq(r.Ports, ",") {
			first, last, isRange := strings.Cut(part, ":")
			if !isRange {
				last = first
			}

			lo, _ := strconv.Atoi(first) // none for ICMP
			hi, _ := strconv.Atoi(last)
			port = port || lo <= int(w.port) && int(w.port) <= hi && hi > 0
		}

		for part := range strings.SplitSeq(r.Sources, ",") {
			if prefix, err := netip.ParsePrefix(part); err == nil {
				source = source || prefix.Contains(netip.MustParseAddr(w.from))
			} else {
				source = source || netip.MustParseAddr(part) == netip.MustParseAddr(w.from)
			}
		}

		if port && source {
			return true
		}
	}

	return false
}
