package k3sconfig

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"talos-proxmox/components/cloudinit"
	"talos-proxmox/components/plan"
)

// proxy are lines of installFile that name the proxy; none without one. The installation script of K3s hands these
// variables on to K3s (K3s: Configuring an HTTP proxy). curl knows the one for HTTP in small letters alone, and apt
// those of what is reached without.
func proxy(p *plan.Plan) string {
	if p.Proxy == nil {
		return ""
	}

	text := ""
	direct := strings.Join(append(directMirrors(p), p.NoProxy...), ",")

	for _, v := range []struct{ name, value string }{
		{"HTTP_PROXY", p.Proxy.HTTP},
		{"http_proxy", p.Proxy.HTTP},
		{"HTTPS_PROXY", p.Proxy.HTTPS},
		{"NO_PROXY", direct},
		{"no_proxy", direct},
	} {
		if v.value != "" {
			text += exports + v.name + "='" + v.value + "'\n"
		}
	}

	return text
}

// directMirrors are the hosts of mirrors that are reached without the proxy. They are named one by one: apt, and curl
// on Ubuntu 22.04, know no networks.
func directMirrors(p *plan.Plan) []string {
	through := (&httpproxy.Config{
		HTTPProxy: p.Proxy.HTTP, HTTPSProxy: p.Proxy.HTTPS, NoProxy: strings.Join(p.NoProxy, ","),
	}).ProxyFunc()

	var hosts []string

	for _, mirror := range []string{p.K3s.Mirror, p.K3s.AptMirror} {
		u, err := url.Parse(mirror)
		if err != nil || u.Host == "" || slices.Contains(hosts, u.Hostname()) {
			continue
		}

		if used, err := through(u); err == nil && used == nil {
			hosts = append(hosts, u.Hostname())
		}
	}

	return hosts
}

const exports = "export "

// packageSources are where apt gets packages, and through what; nil: as the image has it.
func packageSources(p *plan.Plan) *cloudinit.Apt {
	var apt cloudinit.Apt

	if p.K3s.AptMirror != "" {
		apt.Primary = []cloudinit.AptMirror{{Arches: []string{"default"}, URI: p.K3s.AptMirror}}
	}

	if p.Proxy != nil {
		apt.HTTPProxy, apt.HTTPSProxy = p.Proxy.HTTP, p.Proxy.HTTPS

		for _, host := range directMirrors(p) {
			apt.Conf += fmt.Sprintf("Acquire::http::Proxy::%s \"DIRECT\";\nAcquire::https::Proxy::%s \"DIRECT\";\n", host, host)
		}
	} else if apt.Primary == nil {
		return nil
	}

	return &apt
}
