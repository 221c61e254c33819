package cluster

import (
	"fmt"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// checkCNI takes what the operator has set, empty where a default applies.
func (r *Resolver) checkCNI(p *plan.Plan, configured spec.CNIName) {
	c := r.Spec.Cluster.CNI
	p.CNI, p.KubeProxy = c.Name, *c.KubeProxy

	if !checks.OneOf(&r.Problems, "cluster.cni.name", c.Name, spec.CNIFlannel, spec.CNICilium, spec.CNINone) {
		return
	}

	if r.Spec.Environment == spec.EnvironmentProduction && p.Bootstrap == spec.BootstrapPulumi && configured == "" {
		r.Warn("cluster.cni.name",
			"is not set, and a running cluster keeps its pod network: Flannel enforces no network policies",
			string(c.Name), "choose flannel, cilium or none")
	}

	if c.Name == spec.CNICilium {
		r.checkCilium(p)
	} else if c.Version != "" {
		r.Problems.Add("cluster.cni.version", "belongs to Cilium", c.Version,
			"leave it out, or set cluster.cni.name to cilium")
	}

	if c.Name != spec.CNICilium && c.Values != nil {
		r.Problems.Add("cluster.cni.values", "belongs to Cilium", "", "leave it out, or set cluster.cni.name to cilium")
	}

	if c.Name == spec.CNIFlannel && !*c.KubeProxy {
		r.Problems.Add("cluster.cni.kubeProxy", "cannot be false with Flannel, which does not replace kube-proxy",
			"false",
			"leave it out, or set cluster.cni.name to cilium or none")
	}
}

// checkCilium holds what the installation of Cilium needs.
func (r *Resolver) checkCilium(p *plan.Plan) {
	c := r.Spec.Cluster.CNI
	p.CNIValues = c.Values

	r.checkKubeProxyReplacement(*c.KubeProxy, c.Values["kubeProxyReplacement"])

	v, ok := r.version("cluster.cni.version", c.Version, "1.18.4")
	p.CNIVersion = strings.TrimPrefix(v, "v")
	ok = ok && r.checkMajor("cluster.cni.version", c.Version, "1.18.4")

	if ok && plan.Minor(v) < 16 {
		r.Problems.Add("cluster.cni.version", "must be 1.16 or later: nothing older can be installed", c.Version, "raise it")
	}

	// The job that installs it has a sidecar.
	if p.Kubernetes != "" && plan.Minor(p.Kubernetes) < 29 {
		r.Problems.Add("cluster.cni.name", "needs Kubernetes 1.29 or later to be installed", string(c.Name),
			"raise cluster.versions.kubernetes")
	}
}

// checkKubeProxyReplacement: Services have one program that serves them, kube-proxy or Cilium.
func (r *Resolver) checkKubeProxyReplacement(kubeProxy bool, value any) {
	const path = "cluster.cni.values.kubeProxyReplacement"

	replaces, err := strconv.ParseBool(fmt.Sprint(value))

	switch {
	case value == nil:
	case err != nil:
		r.Problems.Add(path, "must be true or false", fmt.Sprint(value), "leave it out: it follows cluster.cni.kubeProxy")
	case replaces && kubeProxy:
		r.Problems.Add(path, "cannot be true with kube-proxy: both would serve every Service", "true",
			"leave it out, and set cluster.cni.kubeProxy to false")
	case !replaces && !kubeProxy:
		r.Problems.Add(path, "cannot be false without kube-proxy: nothing would serve Services", "false",
			"leave it out, or set cluster.cni.kubeProxy to true")
	}
}
