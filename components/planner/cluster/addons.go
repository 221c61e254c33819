package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/labels"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
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
	spec.AddonProxmoxCCM: {"cannot be used with K3s, which has its own cloud controller", "leave it out"},
}

// CheckCertNames holds further names of the certificates.
func (r *Resolver) CheckCertNames(p *plan.Plan) {
	p.CertNames = r.Spec.Cluster.Endpoint.Names

	for i, name := range p.CertNames {
		path := checks.At("cluster.endpoint.names", i)

		switch {
		case !checks.IsAddress(name) && labels.ValidateDNS1123Subdomain(name) != nil:
			r.Problems.Add(path, "must be a DNS name or an address", name, "write it like api.example.com")
		case slices.Contains(p.CertNames[:i], name):
			r.Problems.Add(path, "is named twice", name, "remove one")
		}
	}
}

func (r *Resolver) checkAddons(p *plan.Plan) {
	c := r.Spec.Cluster
	p.Addons, p.ManifestMirror = c.Addons, strings.TrimRight(c.ManifestMirror, "/")

	for i, addon := range c.Addons {
		path := checks.At("cluster.addons", i)
		no, refused := notOnK3s[addon]

		switch least, known := addons[addon]; {
		case r.IsK3s() && refused:
			r.Problems.Add(path, no.why, string(addon), no.instead)
		case !known:
			checks.OneOf(&r.Problems, path, addon, slices.Sorted(maps.Keys(addons))...)
		case slices.Contains(c.Addons[:i], addon):
			r.Problems.Add(path, "is named twice", string(addon), "remove one")
		case p.Kubernetes != "" && plan.Minor(p.Kubernetes) < least:
			r.Problems.Add(path, fmt.Sprintf("needs Kubernetes 1.%d or later", least), string(addon),
				"raise "+r.VersionKey())
		}
	}

	r.checkProxmoxAddon(p, spec.AddonProxmoxCSI, "csiToken", r.Spec.Provided.CSIToken)

	if r.IsK3s() {
		r.checkK3sPackages(p)
	} else {
		r.checkProxmoxAddon(p, spec.AddonProxmoxCCM, "ccmToken", r.Spec.Provided.CCMToken)
	}

	if slices.Contains(p.Addons, spec.AddonGatewayAPI) && p.CNI == spec.CNICilium && p.KubeProxy {
		r.Problems.Add("cluster.addons", "gateway-api needs Cilium without kube-proxy", string(spec.AddonGatewayAPI),
			"set cluster.cni.kubeProxy to false")
	}

	r.checkGatewayAPI(p)

	if c.ManifestMirror != "" {
		r.CheckURL("cluster.manifestMirror", c.ManifestMirror, "https://mirror.lan/manifests", "https", "http")
	}
}

// checkGatewayAPI: the operator of Cilium looks for definitions when it starts, and starts no gateway without them.
// 1.16 asks for TLSRoute, which was experimental then; 1.20 asks for versions of 1.5 of the Gateway API.
func (r *Resolver) checkGatewayAPI(p *plan.Plan) {
	if !slices.Contains(p.Addons, spec.AddonGatewayAPI) || p.CNI != spec.CNICilium || p.CNIVersion == "" {
		return
	}

	if minor := plan.Minor(p.CNIVersion); minor < 17 || minor > 19 {
		r.Warn("cluster.addons", "gateway-api installs the definitions of the Gateway API "+plan.GatewayAPI+
			", and Cilium "+p.CNIVersion+" may want others and start no gateway without them", string(spec.AddonGatewayAPI),
			"check the prerequisites in Cilium's documentation of the Gateway API; to install others, leave the addon out, "+
				"name their file in cluster.manifests, and set gatewayAPI.enabled in cluster.cni.values")
	}
}

// checkK3sPackages holds what addons need of the nodes.
func (r *Resolver) checkK3sPackages(p *plan.Plan) {
	if slices.Contains(p.Addons, spec.AddonLonghorn) && !slices.Contains(p.K3s.Packages, "open-iscsi") {
		r.Warn("k3s.packages", "does not name open-iscsi, which the addon longhorn needs and small images lack", "",
			"add it, unless the image has it")
	}
}

// checkProxmoxAddon: what speaks to Proxmox VE finds VMs by the region, and logs in with a token of its own.
func (r *Resolver) checkProxmoxAddon(p *plan.Plan, addon spec.Addon, key string, given bool) {
	switch wanted := slices.Contains(p.Addons, addon); {
	case wanted && p.Region == "":
		r.Problems.Add("cluster.region", "is required with the addon "+string(addon), "", "give this Proxmox VE a name")
	case given && !wanted:
		r.Problems.Add(key, "belongs to the addon "+string(addon), "",
			"add it to cluster.addons, or run: pulumi config rm "+key)
	}

	if slices.Contains(p.Addons, addon) && !given {
		r.Problems.Add(key, "is required with the addon "+string(addon), "",
			"run: pulumi config set --secret "+key+", with user@realm!name=secret")
	}
}

// CheckAddonVolumes warns of nodes without a volume of an addon: where it has one on some nodes only, it keeps its data
// on the system disk of the others.
func (r *Resolver) CheckAddonVolumes(p *plan.Plan) {
	for _, addon := range []spec.Addon{spec.AddonLonghorn, spec.AddonLocalPath, spec.AddonOpenEBS} {
		if !slices.Contains(p.Addons, addon) || !p.HasVolume(string(addon)) {
			continue
		}

		for _, n := range p.Nodes() {
			if (n.Role == spec.RoleWorker || p.SchedulableControls) && !n.HasVolume(string(addon)) {
				r.Warn("pools."+n.Pool+".extraDisks", "has no volume "+string(addon)+
					", as other nodes have: the addon keeps its data on the system disk there", n.Name,
					"add one, or keep its pods away")
			}
		}
	}
}
