package machineconfig

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// endpoints are the ways to reach a cluster of three control planes and one worker.
func endpoints(versions spec.Versions) map[string]spec.Spec {
	three := func(change func(*spec.Spec)) spec.Spec {
		s := plantest.Atlas(versions)
		s.Cluster.CNI = spec.CNI{}
		s.Pools = map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"},
			"worker":  {Role: spec.RoleWorker, Count: new(1), Addresses: "10.0.0.21"},
		}
		change(&s)

		return s
	}

	return map[string]spec.Spec{
		"first": three(func(*spec.Spec) {}),
		"vip": three(func(s *spec.Spec) {
			s.Cluster.Endpoint = spec.Endpoint{
				Mode:    spec.EndpointVIP,
				Address: "10.0.0.20",
			}
		}),
		"vip-dhcp": three(func(s *spec.Spec) {
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.20"}
			s.Image = spec.Image{Source: spec.SourceTemplate, Template: spec.TemplateImage{Control: "9000", Worker: "9000"}}
			s.Network.Nameservers = nil
		}),
		"vip-written": three(func(s *spec.Spec) {
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.20"}
			s.Image = spec.Image{Source: spec.SourceTemplate, Template: spec.TemplateImage{Control: "9000", Worker: "9000"}}
			s.Network.Addressing = spec.AddressingReserved
			control := s.Pools["control"]
			control.Addressing = spec.AddressingStatic
			s.Pools["control"] = control
		}),
		"kube-vip": three(func(s *spec.Spec) {
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointKubeVIP, Address: "10.0.0.20", Interface: "eth0"}
		}),
		"dns": three(func(s *spec.Spec) {
			s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointDNS, Host: "api.example.com"}
		}),
	}
}

// TestEndpoints: what is rendered for each way to reach the cluster, for the two generations of Talos' documents.
func TestEndpoints(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		for mode, s := range endpoints(versions) {
			t.Run(mode+" "+name, func(t *testing.T) {
				p := plantest.New(t, s)
				accepted(t, "endpoint-"+mode+"-"+name+".yaml", p)

				control, worker := fullConfiguration(t, p, p.Pools[0].Nodes[1]), fullConfiguration(t, p, p.Pools[1].Nodes[0])
				endpoint := map[string]string{
					"first": "10.0.0.11", "vip": "10.0.0.20", "vip-dhcp": "10.0.0.20",
					"vip-written": "10.0.0.20", "kube-vip": "10.0.0.20", "dns": "api.example.com",
				}[mode]

				// Who holds the shared address, on which link.
				var vip []netip.Addr
				for _, d := range control.Machine().Network().Devices() {
					if v := d.VIPConfig(); v != nil {
						vip = append(vip, netip.MustParseAddr(v.IP()))
					}

					if d.DHCP() != (mode == "vip-dhcp") {
						t.Errorf("DHCP is %t", d.DHCP())
					}
				}

				for _, c := range control.NetworkVirtualIPConfigs() {
					vip = append(vip, c.VIP())

					if c.Link() != control.NetworkLinkAliasConfigs()[0].Name() {
						t.Errorf("the link is %s", c.Link())
					}
				}

				want := []netip.Addr(nil)
				if p.EndpointMode == spec.EndpointVIP {
					want = []netip.Addr{netip.MustParseAddr("10.0.0.20")}
				}

				if diff := cmp.Diff(want, vip, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
					t.Errorf("shared addresses: %s", diff)
				}

				if !control.RunDefaultDHCPOperators() ||
					len(worker.Machine().Network().Devices())+len(worker.NetworkVirtualIPConfigs()) > 0 {
					t.Error("links are configured that should not be")
				}

				// Under which names it may be reached, each once.
				names := []string{endpoint}
				for _, a := range []string{"10.0.0.11", "10.0.0.12", "10.0.0.13"} {
					if a != endpoint {
						names = append(names, a)
					}
				}

				if diff := cmp.Diff(names, control.K8sAPIServerConfig().CertSANs()); diff != "" {
					t.Errorf("names of the Kubernetes API: %s", diff)
				}

				if diff := cmp.Diff(names, control.Machine().Security().CertSANs()); diff != "" {
					t.Errorf("names of the Talos API: %s", diff)
				}

				// Which address is a node's own.
				subnets := []string{"10.0.0.0/16"}
				if p.VIP.IsValid() {
					subnets = append(subnets, "!10.0.0.20/32")
				}

				if diff := cmp.Diff(subnets, worker.K8sNodeConfig().NodeIP().ValidSubnets()); diff != "" {
					t.Errorf("addresses of nodes: %s", diff)
				}

				if diff := cmp.Diff(subnets, control.Cluster().Etcd().AdvertisedSubnets()); diff != "" {
					t.Errorf("addresses of etcd members: %s", diff)
				}

				if k := worker.K8sKubePrismConfig(); k == nil || k.Port() != 7445 {
					t.Errorf("KubePrism is %v", k)
				}
			})
		}
	}
}

// TestDiscovery: one registry at most, the Kubernetes one only when asked for.
func TestDiscovery(t *testing.T) {
	for way, want := range map[spec.Discovery][3]bool{ // enabled, service, kubernetes
		"":                       {true, true, false},
		spec.DiscoveryService:    {true, true, false},
		spec.DiscoveryKubernetes: {true, false, true},
		spec.DiscoveryNone:       {false, true, false},
	} {
		t.Run(string(way), func(t *testing.T) {
			s := patched(spec.Versions{Talos: "v1.11.2", Kubernetes: "v1.31.1"}, "", "", "")
			s.Cluster.Discovery = way
			p := plantest.New(t, s)

			if _, err := Check(p); err != nil {
				t.Error(err)
			}

			c := fullConfiguration(t, p, p.Pools[0].Nodes[0])
			d := c.Cluster().Discovery()
			service := c.RawV1Alpha1().ClusterConfig.ClusterDiscoveryConfig.DiscoveryRegistries.RegistryService

			if got := [3]bool{d.Enabled(), service.Enabled(), d.Registries().Kubernetes().Enabled()}; got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
