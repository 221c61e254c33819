package cluster

import (
	"maps"
	"net/url"
	"slices"

	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

func (r *Resolver) checkTailscale() {
	t := r.Spec.Tailscale
	if t == nil {
		return
	}

	if !r.Spec.Provided.TailscaleKey && r.Spec.Cluster.Bootstrap != spec.BootstrapExternal {
		r.Problems.Add("tailscaleAuthKey", "is required: tailscale is set", "",
			"run: pulumi config set --secret tailscaleAuthKey, or set HEADSCALE_AUTH_KEY in the environment")
	}

	if u, err := url.Parse(t.LoginServer); t.LoginServer != "" &&
		(err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		r.Problems.Add("tailscale.loginServer", "must be a URL", t.LoginServer, "write it like https://headscale.example.com")
	} else if t.LoginServer != "" && spec.HasWrongPort(u) {
		r.Problems.Add("tailscale.loginServer", spec.WrongPort, t.LoginServer, "write it like https://headscale.example.com")
	}

	if t.Pools != nil && len(t.Pools) == 0 {
		r.Problems.Add("tailscale.pools", "must name a pool: no node would join", "[]",
			"leave it out for all pools, or remove tailscale")
	}

	for i, name := range t.Pools {
		if _, ok := r.Spec.Pools[name]; !ok {
			r.Problems.Add(checks.At("tailscale.pools", i), "is not a pool", name, "name one of pools")
		}
	}

	if t.AdvertiseEndpoint {
		r.checkAdvertised()
	}
}

// checkAdvertised: the control planes forward to an address that all of them can have.
func (r *Resolver) checkAdvertised() {
	const path = "tailscale.advertiseEndpoint"

	if r.Spec.Cluster.Endpoint.Address == "" {
		r.Problems.Add(path, "needs cluster.endpoint.address", "true", "set cluster.endpoint.mode to vip or kubeVip")
	}

	for _, name := range slices.Sorted(maps.Keys(r.Spec.Pools)) {
		if r.Spec.Pools[name].Role == spec.RoleControlPlane && !r.JoinsTailnet(name) {
			r.Problems.Add(path, "needs the control planes in the tailnet; those of pool "+name+" do not join", "true",
				"add the pool to tailscale.pools")
		}
	}
}

// JoinsTailnet says whether the nodes of a pool are to join.
func (r *Resolver) JoinsTailnet(pool string) bool {
	t := r.Spec.Tailscale

	return t != nil && (t.Pools == nil || slices.Contains(t.Pools, pool))
}
