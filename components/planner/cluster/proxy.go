package cluster

import (
	"net/netip"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
)

func (r *Resolver) checkProxy(p *plan.Plan) {
	c := r.Spec.Cluster.Proxy
	if c == nil {
		return
	}

	p.Proxy = c

	if c.HTTP+c.HTTPS == "" {
		r.Problems.Add("cluster.proxy", "needs http or https", "", "write it like https: http://proxy.lan:3128")
	}

	for _, proxy := range []struct{ key, url string }{{"http", c.HTTP}, {"https", c.HTTPS}} {
		if proxy.url != "" {
			r.CheckURL("cluster.proxy."+proxy.key, proxy.url, "http://proxy.lan:3128", "http", "https")

			if strings.Contains(proxy.url, "'") {
				r.Problems.Add("cluster.proxy."+proxy.key, "must not hold quotes", "", "write %27 for a quote")
			}
		}
	}

	for i, host := range c.Except {
		if strings.ContainsAny(host, ", \t\n/'") && !isPrefix(host) {
			r.Problems.Add(checks.At("cluster.proxy.except", i), "must be a host, a domain or a network", host,
				"write it like registry.lan, .example.com or 10.0.0.0/8")
		}
	}

	pods, services := constants.DefaultIPv4PodCIDR, constants.DefaultIPv4ServiceCIDR
	if r.IsK3s() {
		pods, services = p.K3s.Pods.String(), p.K3s.Services.String()
	}

	p.NoProxy = append([]string{
		"localhost", "127.0.0.1", "::1", r.Spec.Network.CIDR, pods, services, ".svc", ".cluster.local",
	}, c.Except...)
	if e := r.Spec.Cluster.Endpoint; e.Address+e.Host != "" {
		p.NoProxy = append(p.NoProxy, e.Address+e.Host)
	}
}

func isPrefix(text string) bool {
	_, err := netip.ParsePrefix(text)

	return err == nil
}
