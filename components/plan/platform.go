package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/labels"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/components/spec"
)

// addons are those there are, with the first minor version of Kubernetes that they run on.
var addons = map[spec.Addon]uint64{
	spec.AddonMetricsServer: 31, spec.AddonLocalPath: 0, spec.AddonLonghorn: 25, spec.AddonFlux: 32,
	spec.AddonArgoCD: 31, spec.AddonGatewayAPI: 26, spec.AddonProxmoxCSI: 0, spec.AddonProxmoxCCM: 0,
	spec.AddonOpenEBS: 23,
}

// notOnK3s are the addons that K3s clusters do not take: why, and what to do instead.
var notOnK3s = map[spec.Addon]struct{ why, instead string }{
	spec.AddonMetricsServer: {"is part of K3s", "leave it out, here and in k3s.disable"},
	spec.AddonLocalPath:     {"is part of K3s", "leave it out, and local-storage out of k3s.disable"},
	spec.AddonGatewayAPI: {
		"is part of K3s with traefik",
		"leave it out; without traefik, name the file of its definitions in cluster.manifests",
	},
	spec.AddonProxmoxCCM: {"excludes K3s, which has a cloud controller of its own", "leave it out"},
}

// platformKeys are the keys of what a cluster brings to its users, which a cluster that others bootstrap does not have.
func platformKeys(s spec.Spec) []exclusiveKey {
	c := s.Cluster

	return []exclusiveKey{
		{"secretManifests", s.Provided.SecretManifests, ""},
		{"registryLogins", s.Provided.RegistryLogins, ""},
		{"backupPassphrase", s.Provided.BackupPassphrase, ""},
		{"lifecycle.backup.recipients", len(s.Lifecycle.Backup.Recipients) > 0, ""},
		{"csiToken", s.Provided.CSIToken, ""},
		{"ccmToken", s.Provided.CCMToken, ""},
		{"gitOpsKey", s.Provided.GitOpsKey, ""},
		{"ageKey", s.Provided.AgeKey, ""},
		{"cluster.gitOps", c.GitOps != nil, ""},
		{"cluster.addons", len(c.Addons) > 0, ""},
		{"cluster.manifestMirror", c.ManifestMirror != "", c.ManifestMirror},
		{"cluster.registryOptions", len(c.RegistryOptions) > 0, ""},
		{"cluster.proxy", c.Proxy != nil, ""},
		{"cluster.cni.loadBalancer", c.CNI.LoadBalancer != nil, ""},
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
	r.checkRegion(p)

	if p.Bootstrap == spec.BootstrapExternal {
		return
	}

	s := r.spec.Provided
	p.RegistryLogins = s.RegistryLogins
	p.SecretManifests = s.SecretManifests || s.CSIToken || s.CCMToken || s.GitOpsKey || s.AgeKey
	r.checkAddons(p)
	r.checkGitOps(p)
	r.checkLoadBalancer(p)
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

// checkSchedulable: a cluster without workers has no other place for pods than its control planes, so they take pods
// unless the key, or a patch, says otherwise.
func (r *resolver) checkSchedulable(p *Plan) {
	const path = "cluster.schedulableControlPlanes"

	workers := slices.ContainsFunc(r.pools, func(p *pool) bool { return p.Role == spec.RoleWorker && len(p.members) > 0 })
	given := r.spec.Cluster.SchedulableControlPlanes

	switch {
	case r.isK3s() && given != nil && !*given:
		r.problems.Add(path, "cannot be false with K3s, whose servers take pods", "false",
			"leave it out, and give the pool of servers the taint node-role.kubernetes.io/control-plane: NoSchedule")
	case r.isK3s() || p.Bootstrap == spec.BootstrapExternal:
	case given == nil:
		p.SchedulableControls = !workers && !r.patchesScheduling()
	case !*given && !workers:
		r.warn(path, "leaves no node for pods: there are no workers", "false", "add a pool of workers, or leave it out")
	default:
		p.SchedulableControls = *given
	}
}

// patchesScheduling says whether a patch decides what control planes take.
func (r *resolver) patchesScheduling() bool {
	all := slices.Clone(r.spec.Cluster.Patches)
	for _, p := range r.pools {
		all = append(all, p.Patches...)
	}

	return slices.ContainsFunc(all, func(p spec.Patch) bool {
		return strings.Contains(p.Text, "allowSchedulingOnControlPlanes")
	})
}

// regionName is a value of a label that is also part of a provider ID.
var regionName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// checkRegion: what the program knows by itself is not to be stated.
func (r *resolver) checkRegion(p *Plan) {
	p.Region = r.spec.Cluster.Region
	if p.Region == "" {
		return
	}

	if !regionName.MatchString(p.Region) {
		r.problems.Add("cluster.region", "must be letters, digits, dots and dashes, 63 at most", p.Region, "rename it")
	}

	check := func(path string, s spec.VMSpec) {
		for _, label := range []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone} {
			if value, stated := s.Labels[label]; stated {
				r.problems.Add(path+".labels."+label, "is set by cluster.region", value, "leave one of the two out")
			}
		}
	}

	check("defaults", r.spec.Defaults)

	for _, pool := range r.pools {
		check(pool.path, pool.VMSpec)

		for _, m := range pool.members {
			if m.shaped() {
				check(m.path, m.VMSpec)
			}
		}
	}
}

// ProviderID is what Kubernetes calls the machine of a node; empty without a region. K3s has one of its own.
func (p *Plan) ProviderID(n Node) string {
	if p.Region == "" || p.Distribution == spec.DistributionK3s {
		return ""
	}

	return fmt.Sprintf("proxmox://%s/%d", p.Region, n.VMID)
}

// Topology are the labels of a node that say where its VM is; none without a region.
func (p *Plan) Topology(host string) map[string]string {
	if p.Region == "" {
		return nil
	}

	return map[string]string{corev1.LabelTopologyRegion: p.Region, corev1.LabelTopologyZone: host}
}

func (r *resolver) checkAddons(p *Plan) {
	c := r.spec.Cluster
	p.Addons, p.ManifestMirror = c.Addons, strings.TrimRight(c.ManifestMirror, "/")

	for i, addon := range c.Addons {
		path := at("cluster.addons", i)
		no, refused := notOnK3s[addon]

		switch least, known := addons[addon]; {
		case r.isK3s() && refused:
			r.problems.Add(path, no.why, string(addon), no.instead)
		case !known:
			oneOf(r, path, addon, slices.Sorted(maps.Keys(addons))...)
		case slices.Contains(c.Addons[:i], addon):
			r.problems.Add(path, "is named twice", string(addon), "remove one")
		case p.Kubernetes != "" && minor(p.Kubernetes) < least:
			r.problems.Add(path, fmt.Sprintf("needs Kubernetes 1.%d or later", least), string(addon),
				"raise "+r.versionKey())
		}
	}

	r.checkProxmoxAddon(p, spec.AddonProxmoxCSI, "csiToken", r.spec.Provided.CSIToken)

	if r.isK3s() {
		r.checkK3sPackages(p)
	} else {
		r.checkProxmoxAddon(p, spec.AddonProxmoxCCM, "ccmToken", r.spec.Provided.CCMToken)
	}

	if slices.Contains(p.Addons, spec.AddonGatewayAPI) && p.CNI == spec.CNICilium && p.KubeProxy {
		r.problems.Add("cluster.addons", "gateway-api needs Cilium without kube-proxy", string(spec.AddonGatewayAPI),
			"set cluster.cni.kubeProxy to false")
	}

	if c.ManifestMirror != "" {
		r.checkURL("cluster.manifestMirror", c.ManifestMirror, "https://mirror.lan/manifests", "https", "http")
	}
}

// checkK3sPackages holds what addons need of the nodes.
func (r *resolver) checkK3sPackages(p *Plan) {
	if slices.Contains(p.Addons, spec.AddonLonghorn) && !slices.Contains(p.K3s.Packages, "open-iscsi") {
		r.warn("k3s.packages", "does not name open-iscsi, which the addon longhorn needs and small images lack", "",
			"add it, unless the image has it")
	}
}

// checkProxmoxAddon: what speaks to Proxmox VE finds VMs by the region, and logs in with a token of its own.
func (r *resolver) checkProxmoxAddon(p *Plan, addon spec.Addon, key string, given bool) {
	switch wanted := slices.Contains(p.Addons, addon); {
	case wanted && p.Region == "":
		r.problems.Add("cluster.region", "is required with the addon "+string(addon), "", "give this Proxmox VE a name")
	case given && !wanted:
		r.problems.Add(key, "belongs to the addon "+string(addon), "",
			"add it to cluster.addons, or run: pulumi config rm "+key)
	}

	if slices.Contains(p.Addons, addon) && !given {
		r.problems.Add(key, "is required with the addon "+string(addon), "",
			"run: pulumi config set --secret "+key+", with user@realm!name=secret")
	}
}

// checkLonghornImage: its engine needs what Talos has in extensions.
func (r *resolver) checkLonghornImage(p *pool) {
	image := p.planned.Image

	switch {
	case r.isK3s() || r.spec.Cluster.Bootstrap == spec.BootstrapExternal,
		!slices.Contains(r.spec.Cluster.Addons, spec.AddonLonghorn):
		return
	case image.SchematicID != "", len(image.Extensions) == 0 && r.spec.Image.Source != spec.SourceFactory:
		return // what it holds is not stated
	}

	for _, extension := range []string{"iscsi-tools", "util-linux-tools"} {
		if !slices.Contains(image.Extensions, extension) {
			r.problems.Add(p.path, "needs the extension "+extension+" for the addon longhorn",
				strings.Join(image.Extensions, ", "),
				"add it to image.factory.extensions, or to the schematic of the image or the pool")
		}
	}
}

// checkAddonVolumes: where an addon has a volume on some nodes only, it keeps its data on the system disk of the
// others.
func (r *resolver) checkAddonVolumes(p *Plan) {
	for _, addon := range []spec.Addon{spec.AddonLonghorn, spec.AddonLocalPath, spec.AddonOpenEBS} {
		if !slices.Contains(p.Addons, addon) || !p.HasVolume(string(addon)) {
			continue
		}

		for _, n := range p.Nodes() {
			if (n.Role == spec.RoleWorker || p.SchedulableControls) && !n.HasVolume(string(addon)) {
				r.warn("pools."+n.Pool+".extraDisks", "has no volume "+string(addon)+
					", as other nodes have: the addon keeps its data on the system disk there", n.Name,
					"add one, or keep its pods away")
			}
		}
	}
}

// checkLoadBalancer: the addresses of Services belong to nothing else.
func (r *resolver) checkLoadBalancer(p *Plan) {
	const path = "cluster.cni.loadBalancer"

	given := r.spec.Cluster.CNI.LoadBalancer
	if given == nil {
		return
	}

	lb := &PlannedLoadBalancer{LoadBalancer: *given}
	lb.Mode = cmp.Or(lb.Mode, spec.LoadBalancerL2)
	p.LoadBalancer = lb

	if r.isK3s() && !slices.Contains(p.K3s.Disable, "servicelb") {
		r.problems.Add(path, "excludes the load balancer of K3s", "", "add servicelb to k3s.disable")
	}

	if p.CNI == spec.CNINone {
		r.problems.Add(path, "needs Cilium or Flannel", string(p.CNI), "set cluster.cni.name to one of them")
	}

	if p.CNI == spec.CNICilium && p.KubeProxy && lb.Mode == spec.LoadBalancerL2 {
		r.problems.Add(path+".mode", "l2 needs Cilium without kube-proxy", string(lb.Mode),
			"set cluster.cni.kubeProxy to false, or use bgp")
	}

	if len(lb.Addresses) == 0 {
		r.problems.Add(path+".addresses", "is required", "", "write it like [10.0.0.200-10.0.0.220]")
	}

	for i, text := range lb.Addresses {
		span, err := netipx.ParseIPRange(text)
		if prefix, no := netip.ParsePrefix(text); no == nil {
			span, err = netipx.RangeOfPrefix(prefix), nil
		}

		switch in := at(path+".addresses", i); {
		case err != nil:
			r.problems.Add(in, "must be a network or a range of addresses", text, "write it like 10.0.0.200-10.0.0.220")
		case lb.Mode == spec.LoadBalancerL2 && r.network.IsValid() &&
			!(r.network.Contains(span.From()) && r.network.Contains(span.To())):
			r.problems.Add(in, "must lie in network.cidr "+r.network.String()+" with mode l2", text,
				"choose addresses of that network, or use bgp")
		default:
			lb.Ranges = append(lb.Ranges, span)
		}
	}

	lb.Clients = r.prefixes(path+".from", lb.From)

	if !p.Firewall && lb.From != nil {
		r.warn(path+".from", "closes nothing: no firewall is set up", "", "set firewall.enabled, or leave it out")
	}

	if !oneOf(r, path+".mode", lb.Mode, spec.LoadBalancerL2, spec.LoadBalancerBGP) {
		return
	}

	if bgp := lb.Mode == spec.LoadBalancerBGP; bgp != (lb.ASN > 0) || bgp != (len(lb.Peers) > 0) {
		r.problems.Add(path, `needs asn and peers with mode "bgp", and only with it`, string(lb.Mode),
			"write it like asn: 64512, peers: [{ address: 10.0.0.1, asn: 64500 }]")
	}

	for i, peer := range lb.Peers {
		if !isAddress(peer.Address) {
			r.problems.Add(at(path+".peers", i)+".address", "must be an address", peer.Address, "write it like 10.0.0.1")
		}
	}
}

// checkServiceAddresses: none of them is a node's, the router's or the endpoint's.
func (r *resolver) checkServiceAddresses(p *Plan) {
	if p.LoadBalancer == nil {
		return
	}

	check := func(address netip.Addr, owner string) {
		for _, span := range p.LoadBalancer.Ranges {
			if address.IsValid() && span.Contains(address) {
				r.problems.Add("cluster.cni.loadBalancer.addresses", "hold "+address.String()+", the address of "+owner,
					span.String(), "leave it out of the range")
			}
		}
	}

	check(r.gateway, "the router")
	check(r.vip, "the endpoint")

	for _, n := range p.Nodes() {
		check(n.Address, n.Name)
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

	for _, proxy := range []struct{ key, url string }{{"http", c.HTTP}, {"https", c.HTTPS}} {
		if proxy.url != "" {
			r.checkURL("cluster.proxy."+proxy.key, proxy.url, "http://proxy.lan:3128", "http", "https")

			if strings.Contains(proxy.url, "'") {
				r.problems.Add("cluster.proxy."+proxy.key, "must not hold quotes", "", "write %27 for a quote")
			}
		}
	}

	for i, host := range c.Except {
		if strings.ContainsAny(host, ", \t\n/'") && !isPrefix(host) {
			r.problems.Add(at("cluster.proxy.except", i), "must be a host, a domain or a network", host,
				"write it like registry.lan, .example.com or 10.0.0.0/8")
		}
	}

	pods, services := constants.DefaultIPv4PodCIDR, constants.DefaultIPv4ServiceCIDR
	if r.isK3s() {
		pods, services = p.K3s.Pods.String(), p.K3s.Services.String()
	}

	p.NoProxy = append([]string{
		"localhost", "127.0.0.1", "::1", r.spec.Network.CIDR, pods, services, ".svc", ".cluster.local",
	}, c.Except...)
	if e := r.spec.Cluster.Endpoint; e.Address+e.Host != "" {
		p.NoProxy = append(p.NoProxy, e.Address+e.Host)
	}
}

func isPrefix(text string) bool {
	_, err := netip.ParsePrefix(text)

	return err == nil
}
