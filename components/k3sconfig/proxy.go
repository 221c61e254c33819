package k3sconfig

import (
	"strings"

	"talos-proxmox/components/cloudinit"
	"talos-proxmox/components/plan"
)

// proxy are lines of installFile that name the proxy; none without one. The installation script of K3s hands these
// variables on to K3s (K3s: Configuring an HTTP proxy); curl knows the one for HTTP in small letters alone.
func proxy(p *plan.Plan) string {
	if p.Proxy == nil {
		return ""
	}

	text := ""

	for _, v := range []struct{ name, value string }{
		{"HTTP_PROXY", p.Proxy.HTTP},
		{"http_proxy", p.Proxy.HTTP},
		{"HTTPS_PROXY", p.Proxy.HTTPS},
		{"NO_PROXY", strings.Join(p.NoProxy, ",")},
	} {
		if v.value != "" {
			text += exports + v.name + "='" + v.value + "'\n"
		}
	}

	return text
}

const exports = "export "

// proxyOf are the lines of proxy that a node was told.
func proxyOf(c cloudinit.Config) string {
	var lines []string

	for line := range strings.Lines(content(c, installFile)) {
		if strings.HasPrefix(line, exports) {
			lines = append(lines, line)
		}
	}

	return strings.Join(lines, "")
}

// packageSources are where apt gets packages, and through what; nil: as the image has it.
func packageSources(p *plan.Plan) *cloudinit.Apt {
	var apt cloudinit.Apt

	if p.K3s.AptMirror != "" {
		apt.Primary = []cloudinit.AptMirror{{Arches: []string{"default"}, URI: p.K3s.AptMirror}}
	}

	if p.Proxy != nil {
		apt.HTTPProxy, apt.HTTPSProxy = p.Proxy.HTTP, p.Proxy.HTTPS
	} else if apt.Primary == nil {
		return nil
	}

	return &apt
}
