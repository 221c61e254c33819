package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/spec"
)

// addons are those there are, with the first minor version of Kubernetes that they run on.
var addons = map[spec.Addon]uint64{spec.AddonMetricsServer: 31, spec.AddonLocalPath: 0}

// platformKeys are the keys of what a Talos cluster brings to its users, which neither K3s nor a cluster that others
// bootstrap has.
func platformKeys(c spec.Cluster) []exclusiveKey {
	return []exclusiveKey{
		{"cluster.addons", len(c.Addons) > 0, ""},
		{"cluster.manifestMirror", c.ManifestMirror != "", c.ManifestMirror},
		{"cluster.registryOptions", len(c.RegistryOptions) > 0, ""},
		{"cluster.proxy", c.Proxy != nil, ""},
		{"cluster.apiServer.oidc", c.APIServer.OIDC != nil, ""},
		{"cluster.apiServer.authentication", c.APIServer.Authentication != nil, ""},
		{"cluster.apiServer.audit", c.APIServer.Audit != nil, ""},
		{"cluster.apiServer.admission", len(c.APIServer.Admission) > 0, ""},
	}
}

// checkPlatform decides what a cluster brings to those who work on it.
func (r *resolver) checkPlatform(p *Plan) {
	r.checkCertNames(p)
	r.checkSchedulable(p)

	if r.isK3s() || p.Bootstrap == spec.BootstrapExternal {
		return
	}

	r.checkAddons(p)
	r.checkProxy(p)
	r.checkAPIServer(p)
}

func (r *resolver) checkCertNames(p *Plan) {
	p.CertNames = r.spec.Cluster.Endpoint.Names

	for i, name := range p.CertNames {
		path := at("cluster.endpoint.names", i)

		switch {
		case !isAddress(name) && labels.ValidateDNS1123Subdomain(name) != nil:
			r.problems.Add(path, "must be a DNS name or an address", name, "write it like api.example.com")
		case slices.Contains(p.CertNames[:i], name):
			r.problems.Add(path, "is named twice", name, "remove one")
		}
	}
}

// checkSchedulable: a cluster without workers has no other place for pods than its control planes.
func (r *resolver) checkSchedulable(p *Plan) {
	const path = "cluster.schedulableControlPlanes"

	workers := slices.ContainsFunc(r.pools, func(p *pool) bool { return p.Role == spec.RoleWorker && len(p.members) > 0 })
	given := r.spec.Cluster.SchedulableControlPlanes

	switch {
	case r.isK3s() && given != nil && !*given:
		r.problems.Add(path, "cannot be false with K3s, whose servers take pods", "false",
			"leave it out, and give the pool of servers the taint node-role.kubernetes.io/control-plane: NoSchedule")
	case given != nil && !*given && !workers:
		r.warn(path, "leaves no node for pods: there are no workers", "false", "add a pool of workers, or leave it out")
	}

	p.SchedulableControls = !r.isK3s() && valueOr(given, !workers)
}

func (r *resolver) checkAddons(p *Plan) {
	c := r.spec.Cluster
	p.Addons, p.ManifestMirror = c.Addons, strings.TrimRight(c.ManifestMirror, "/")

	for i, addon := range c.Addons {
		path := at("cluster.addons", i)

		switch least, known := addons[addon]; {
		case !known:
			oneOf(r, path, addon, slices.Sorted(maps.Keys(addons))...)
		case slices.Contains(c.Addons[:i], addon):
			r.problems.Add(path, "is named twice", string(addon), "remove one")
		case p.Kubernetes != "" && minor(p.Kubernetes) < least:
			r.problems.Add(path, fmt.Sprintf("needs Kubernetes 1.%d or later", least), string(addon),
				"raise cluster.versions.kubernetes")
		}
	}

	if c.ManifestMirror != "" {
		r.checkURL("cluster.manifestMirror", c.ManifestMirror, "https://mirror.lan/manifests", "https", "http")
	}
}

func (r *resolver) checkProxy(p *Plan) {
	c := r.spec.Cluster.Proxy
	if c == nil {
		return
	}

	p.Proxy = c

	if c.HTTP+c.HTTPS == "" {
		r.problems.Add("cluster.proxy", "needs http or https", "", "write it like https: http://proxy.lan:3128")
	}

	for key, proxy := range map[string]string{"http": c.HTTP, "https": c.HTTPS} {
		if proxy != "" {
			r.checkURL("cluster.proxy."+key, proxy, "http://proxy.lan:3128", "http", "https")
		}
	}

	for i, host := range c.Except {
		if strings.ContainsAny(host, ", \t\n/") && !isPrefix(host) {
			r.problems.Add(at("cluster.proxy.except", i), "must be a host, a domain or a network", host,
				"write it like registry.lan, .example.com or 10.0.0.0/8")
		}
	}

	p.NoProxy = append([]string{
		"localhost", "127.0.0.1", "::1", r.spec.Network.CIDR, constants.DefaultIPv4PodCIDR, constants.DefaultIPv4ServiceCIDR,
		".svc", ".cluster.local",
	}, c.Except...)
	if e := r.spec.Cluster.Endpoint; e.Address+e.Host != "" {
		p.NoProxy = append(p.NoProxy, e.Address+e.Host)
	}
}

func isPrefix(text string) bool {
	_, err := netip.ParsePrefix(text)

	return err == nil
}

func (r *resolver) checkAPIServer(p *Plan) {
	const path = "cluster.apiServer"

	a := r.spec.Cluster.APIServer
	p.APIServer = a

	if o := a.OIDC; o != nil {
		r.checkURL(path+".oidc.issuer", o.Issuer, "https://login.example.com", "https")

		if o.ClientID == "" {
			r.problems.Add(path+".oidc.clientID", "is required", "", "state the client that tokens are issued for")
		}

		if a.Authentication != nil {
			r.problems.Add(path+".oidc", "excludes authentication: an API server takes one of the two", o.Issuer,
				"describe the provider there")
		}
	}

	r.checkObject(path+".audit", a.Audit, "audit.k8s.io/v1", "Policy")

	if r.checkObject(path+".authentication", a.Authentication, "apiserver.config.k8s.io/v1", "AuthenticationConfiguration") &&
		p.Kubernetes != "" && minor(p.Kubernetes) < 30 {
		r.problems.Add(path+".authentication", "needs Kubernetes 1.30 or later", "", "raise cluster.versions.kubernetes")
	}
}

// checkObject holds that a text is one object of a kind, in a version of its group that begins as stated. What it says is
// not shown.
func (r *resolver) checkObject(path string, text *spec.InlineOrFile, version, kind string) bool {
	if text == nil {
		return false
	}

	var object struct{ APIVersion, Kind string }

	if yaml.Unmarshal([]byte(text.Text), &object) != nil || object.Kind != kind ||
		!strings.HasPrefix(object.APIVersion, version) {
		r.problems.Add(path, "must be one "+kind+" of "+version, text.Origin, "correct it")

		return false
	}

	return true
}
