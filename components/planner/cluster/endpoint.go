package cluster

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/labels"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// CheckEndpoint holds what each mode needs and excludes.
func (r *Resolver) CheckEndpoint(p *plan.Plan) {
	e := r.Spec.Cluster.Endpoint
	p.EndpointMode = e.Mode

	if !checks.OneOf(&r.Problems, "cluster.endpoint.mode", e.Mode, spec.EndpointFirstControlPlane, spec.EndpointVIP,
		spec.EndpointDNS,
		spec.EndpointKubeVIP) {
		return
	}

	for _, key := range []struct {
		name, value, example string
		modes                []spec.EndpointMode
	}{
		{
			"address", e.Address, "an unused address of the network",
			[]spec.EndpointMode{spec.EndpointVIP, spec.EndpointKubeVIP},
		},
		{"host", e.Host, "a name like api.example.com", []spec.EndpointMode{spec.EndpointDNS}},
		{"interface", e.Interface, "an interface like eth0", []spec.EndpointMode{spec.EndpointKubeVIP}},
	} {
		path := "cluster.endpoint." + key.name
		wanted := slices.Contains(key.modes, e.Mode)

		switch {
		case wanted && key.value == "":
			r.Problems.Add(path, `is required with mode "`+string(e.Mode)+`"`, "", "set "+key.example)
		case !wanted && key.value != "":
			r.Problems.Add(path, `has no meaning with mode "`+string(e.Mode)+`"`, key.value, "leave it out, or change the mode")
		}
	}

	if e.Version != "" && e.Mode != spec.EndpointKubeVIP {
		r.Problems.Add("cluster.endpoint.version", `has no meaning with mode "`+string(e.Mode)+`"`, e.Version,
			"leave it out, or set the mode to kubeVip")
	}

	if e.Host != "" && labels.ValidateDNS1123Subdomain(e.Host) != nil {
		r.Problems.Add("cluster.endpoint.host", "must be a DNS name", e.Host, "write it like api.example.com")
	}

	if e.Mode == spec.EndpointKubeVIP {
		r.checkKubeVIP(p)
	}

	r.checkVIP(p)
}

// kubeVIPVersion is the version of kube-vip that the manifests were written for.
const kubeVIPVersion = "v1.2.3"

func (r *Resolver) checkKubeVIP(p *plan.Plan) {
	e := r.Spec.Cluster.Endpoint
	p.VIPInterface, p.KubeVIP = e.Interface, kubeVIPVersion

	if e.Interface != "" && !checks.LinkName.MatchString(e.Interface) {
		r.Problems.Add("cluster.endpoint.interface", "must be the name of a network interface", e.Interface,
			"write it like eth0")
	}

	if e.Version != "" {
		p.KubeVIP, _ = r.version("cluster.endpoint.version", e.Version, kubeVIPVersion)
	}

	// Its links carry IP alone. An address on one answers no ARP, and the tailnet has no route to it.
	if strings.HasPrefix(e.Interface, "tailscale") {
		r.Problems.Add("cluster.endpoint.interface",
			"cannot be one of a tailnet, in which other machines do not reach an address that kube-vip announces", e.Interface,
			"name the interface of network.cidr and choose an address of that network; to reach it over the tailnet, "+
				"set tailscale.advertiseEndpoint and approve the route in the tailnet")
	}
}

func (r *Resolver) checkVIP(p *plan.Plan) {
	e := r.Spec.Cluster.Endpoint
	if e.Address == "" {
		return
	}

	const path = "cluster.endpoint.address"

	a, err := netip.ParseAddr(e.Address)

	if err != nil || a.Zone() != "" {
		r.Problems.Add(path, "must be an address", e.Address, "write it like 10.0.0.20")

		return
	}

	p.VIP = a
}

// Endpoint is the URL of the Kubernetes API, empty when it is not known in advance.
func (r *Resolver) Endpoint(p *plan.Plan) string {
	const port = "6443"

	switch p.EndpointMode {
	case spec.EndpointVIP, spec.EndpointKubeVIP:
		return "https://" + hostPort(p.VIP, port)
	case spec.EndpointDNS:
		return "https://" + r.Spec.Cluster.Endpoint.Host + ":" + port
	case spec.EndpointFirstControlPlane:
		if first := p.ControlPlanes(); len(first) > 0 && first[0].Address.IsValid() {
			return "https://" + hostPort(first[0].Address, port)
		}
	}

	return ""
}

func hostPort(a netip.Addr, port string) string {
	if a.Is6() {
		return "[" + a.String() + "]:" + port
	}

	return a.String() + ":" + port
}

// checkDiscovery holds what the registries need.
func (r *Resolver) checkDiscovery(p *plan.Plan) {
	d := r.Spec.Cluster.Discovery
	p.Discovery = d

	if checks.OneOf(&r.Problems, "cluster.discovery", d, spec.DiscoveryService, spec.DiscoveryKubernetes,
		spec.DiscoveryNone) &&
		d == spec.DiscoveryKubernetes && plan.Minor(p.Kubernetes) >= 32 {
		// AuthorizeNodeWithSelectors is on by default from there on.
		r.Problems.Add("cluster.discovery",
			"cannot be kubernetes from Kubernetes 1.32 on, where a node may not read the others",
			string(d), "use service, or none")
	}
}
