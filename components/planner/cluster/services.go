package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// CheckServices holds what nodes are told of services around them.
func (r *Resolver) CheckServices(p *plan.Plan) {
	c := r.Spec.Cluster

	for i, server := range r.Spec.Network.TimeServers {
		if !checks.IsAddress(server) && labels.ValidateDNS1123Subdomain(server) != nil {
			r.Problems.Add(checks.At("network.timeServers", i), "must be an address or a DNS name", server,
				"write it like time.example.com")
		}
	}

	p.TimeServers = r.Spec.Network.TimeServers

	for _, registry := range slices.Sorted(maps.Keys(c.RegistryMirrors)) {
		path := "cluster.registryMirrors." + registry

		if !spec.IsRegistry(registry) {
			r.Problems.Add(path, "must be the name of a registry", registry, "write it like docker.io, "+
				"registry.lan:5000 or *")
		}

		if len(c.RegistryMirrors[registry]) == 0 {
			r.Problems.Add(path, "must name a mirror", "", "write it like [https://registry.lan:5000]")
		}

		for i, mirror := range c.RegistryMirrors[registry] {
			r.CheckURL(checks.At(path, i), mirror, "https://registry.lan:5000", "https", "http")
		}

		p.Mirrors = append(p.Mirrors, plan.Mirror{
			Registry: registry, Endpoints: c.RegistryMirrors[registry], Options: c.RegistryOptions[registry],
		})
	}

	for _, registry := range slices.Sorted(maps.Keys(c.RegistryOptions)) {
		path := "cluster.registryOptions." + registry

		if len(c.RegistryMirrors[registry]) == 0 {
			r.Problems.Add(path, "belongs to mirrors of the registry", registry, "add cluster.registryMirrors."+registry)
		}

		if r.IsK3s() {
			r.checkK3sRegistry(p, path, registry)
		} else if c.RegistryOptions[registry].SkipFallback && plan.Minor(p.Talos) < 9 {
			r.Problems.Add(path+".skipFallback", "needs Talos 1.9 or later", "true", "leave it out, or upgrade Talos first")
		}
	}

	r.checkLogs("cluster.logs.services", c.Logs.Services)
	r.checkLogs("cluster.logs.kernel", c.Logs.Kernel)
	p.ServiceLogs, p.KernelLogs = c.Logs.Services, c.Logs.Kernel

	r.checkCertificates()
	p.TrustedCAs = c.TrustedCAs

	for i, m := range c.Manifests {
		switch {
		case !m.URL():
		case r.IsK3s():
			r.Problems.Add(checks.At("cluster.manifests", i), "must be a file or text: K3s nodes fetch no manifests", m.Text,
				"download it, and name the file")
		default:
			r.CheckURL(checks.At("cluster.manifests", i), m.Text, "https://example.com/flux.yaml", "https", "http")
		}

		if slices.ContainsFunc(c.Manifests[:i],
			func(o spec.InlineOrFile) bool { return o.Origin == m.Origin && o.Text == m.Text }) {
			r.Problems.Add(checks.At("cluster.manifests", i), "is listed twice", m.Origin, "leave it out")
		}
	}

	p.Manifests = c.Manifests
}

func (r *Resolver) checkLogs(path string, urls []string) {
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "tcp" && u.Scheme != "udp" || u.Hostname() == "" || u.Port() == "" || u.User != nil ||
			u.Path != "" && u.Path != "/" {
			r.Problems.Add(checks.At(path, i), "must be tcp:// or udp://, a host and a port", text,
				"write it like tcp://10.0.0.5:5044")
		} else if spec.HasWrongPort(u) {
			r.Problems.Add(checks.At(path, i), spec.WrongPort, text, "write it like tcp://10.0.0.5:5044")
		}
	}
}

// checkCertificates finds what is no certificate. What it is instead may be secret.
func (r *Resolver) checkCertificates() {
	for i, ca := range r.Spec.Cluster.TrustedCAs {
		found, rest := 0, []byte(ca.Text)

		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}

			if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
				found = 0

				break
			}

			found++
		}

		if found == 0 {
			r.Problems.Add(checks.At("cluster.trustedCAs", i), "must be certificates in PEM, and nothing else", ca.Origin,
				"correct the file")
		}
	}
}

// checkK3sRegistry holds what K3s can do of the options of a registry: it takes the path of a URL as it stands, and
// asks either all registries that have mirrors, or none of them.
func (r *Resolver) checkK3sRegistry(p *plan.Plan, path, registry string) {
	c := r.Spec.Cluster

	if c.RegistryOptions[registry].OverridePath {
		for i, mirror := range c.RegistryMirrors[registry] {
			if u, err := url.Parse(mirror); err == nil && strings.Trim(u.Path, "/") == "" {
				r.Problems.Add(checks.At("cluster.registryMirrors."+registry, i), "has no path, to which K3s adds /v2", mirror,
					"leave overridePath out")
			}
		}
	}

	if !c.RegistryOptions[registry].SkipFallback {
		return
	}

	if fallbackPatches.before(p.Kubernetes) {
		r.Problems.Add(path+".skipFallback", "needs K3s 1.28.6 or 1.29.1", "true", "raise "+r.VersionKey())
	}

	for _, other := range slices.Sorted(maps.Keys(c.RegistryMirrors)) {
		if !c.RegistryOptions[other].SkipFallback {
			r.Problems.Add(path+".skipFallback", "must be set for all registries with mirrors on K3s, or for none",
				"true",
				"set cluster.registryOptions."+other+".skipFallback too")
		}
	}
}

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
