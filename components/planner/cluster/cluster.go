package cluster

import (
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// CheckSystem decides what the nodes run: Talos or K3s, and Kubernetes with its network. It takes the CNI that the
// operator has set, empty where a default applies.
func (r *Resolver) CheckSystem(p *plan.Plan, configured spec.CNIName) {
	r.checkOutputs(p)

	if r.IsK3s() {
		r.checkK3s(p)

		return
	}

	p.Talos, p.Kubernetes = r.versions()
	p.Contract = r.contract(p.Talos)
	r.checkCNI(p, configured)
	r.checkDiscovery(p)
	r.checkTailscale()
}

// CheckPlatform decides what a cluster that the program bootstraps brings to those who work on it.
func (r *Resolver) CheckPlatform(p *plan.Plan) {
	if p.Bootstrap == spec.BootstrapExternal {
		return
	}

	s := r.Spec.Provided
	p.RegistryLogins = s.RegistryLogins
	p.SecretManifests = s.SecretManifests || s.CSIToken || s.CCMToken || s.GitOpsKey || s.AgeKey
	r.checkAddons(p)
	r.checkGitOps(p)
	r.checkLoadBalancer(p)
	r.checkProxy(p)
	r.checkAPIServer(p)
}
