package plan

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"talos-proxmox/components/spec"
)

func (r *resolver) checkCluster(p *Plan, stated spec.CNIName) {
	c := r.spec.Cluster

	switch {
	case c.Name == "":
		r.problems.Add("cluster.name", "is required", "", "give the cluster a name, for example k3s-dev")
	case slices.Contains(sharedTags(), c.Name):
		r.problems.Add("cluster.name", "must not be a tag that the VMs of other clusters have, too: "+
			strings.Join(sharedTags(), ", "), c.Name, "choose another name")
	case !isLabel(c.Name):
		r.problems.Add("cluster.name", "must be a DNS label: lower case letters, digits and dashes", c.Name, "rename it")
	}

	controls, unclear := 0, false

	for _, pool := range r.pools {
		if pool.Role == spec.RoleControlPlane {
			controls += len(pool.members)
			unclear = unclear || pool.Count == nil && pool.Nodes == nil && pool.GPUs == nil
		}
	}

	switch {
	case unclear: // reported where it is
	case controls == 0:
		r.problems.Add("pools", "need at least one control plane", "", "add a pool with role: controlplane and count: 1")
	case c.HA && (controls < 3 || controls%2 == 0):
		r.problems.Add("cluster.ha", "needs an odd number of control planes, three at least",
			count(controls, "control plane"),
			"set the count to 3 or 5, or ha to false")
	case controls%2 == 0:
		r.warn("pools", "an even number of control planes tolerates no more failures than one less",
			count(controls, "control plane"),
			"use an odd number")
	}

	r.checkOutputs(p)

	if r.isK3s() {
		r.checkK3s(p)

		return
	}

	p.Talos, p.Kubernetes = r.versions()
	p.Contract = r.contract(p.Talos)
	r.checkCNI(p, stated)
	r.checkDiscovery(p)
	r.checkTailscale()
}

// versions checks the pair against the compatibility table that Talos itself uses.
func (r *resolver) versions() (talos, kubernetes string) {
	v := r.spec.Cluster.Versions
	talos, ok := r.version("cluster.versions.talos", v.Talos, "v1.12.4")

	configured := r.spec.Cluster.Bootstrap != spec.BootstrapExternal
	ok = ok && r.checkTalos(talos, configured)

	if !configured {
		return talos, ""
	}

	kubernetes, okKubernetes := r.version("cluster.versions.kubernetes", v.Kubernetes, "v1.34.2")
	if !ok || !okKubernetes {
		return talos, kubernetes
	}

	t, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
	if err != nil {
		r.problems.Add("cluster.versions.talos", "is not a version that Talos knows: "+err.Error(), talos, "correct it")

		return talos, kubernetes
	}

	k, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(kubernetes, "v"))
	if err != nil {
		r.problems.Add("cluster.versions.kubernetes", "is not a Kubernetes version: "+err.Error(), kubernetes, "correct it")

		return talos, kubernetes
	}

	if err := k.SupportedWith(t); err != nil {
		r.problems.Add("cluster.versions.kubernetes", "does not go with Talos "+talos+": "+err.Error(), kubernetes,
			"change one of the two versions")
	}

	return talos, kubernetes
}

// contract holds that the running version knows the defaults that it is to be configured with.
func (r *resolver) contract(talos string) string {
	const path = "cluster.versions.contract"

	given := r.spec.Cluster.Versions.Contract
	if given == "" {
		return ""
	}

	contract, ok := r.version(path, given, "v1.12.4")
	if ok && minor(contract) > minor(talos) {
		r.problems.Add(path, "must not be later than cluster.versions.talos, "+talos, given, "upgrade first")
	} else if ok && minor(contract) > NewestContract {
		r.problems.Add(path, fmt.Sprintf("must be 1.%d or earlier: the Talos provider knows no later one", NewestContract),
			given, "lower it, or leave it out")
	}

	return contract
}

// checkCNI takes what the operator has stated, empty where a default applies.
func (r *resolver) checkCNI(p *Plan, stated spec.CNIName) {
	c := r.spec.Cluster.CNI
	p.CNI, p.KubeProxy = c.Name, *c.KubeProxy

	if !oneOf(r, "cluster.cni.name", c.Name, spec.CNIFlannel, spec.CNICilium, spec.CNINone) {
		return
	}

	if r.spec.Environment == spec.EnvironmentProduction && p.Bootstrap == spec.BootstrapPulumi && stated == "" {
		r.warn("cluster.cni.name",
			"is not stated, and a running cluster keeps its pod network: Flannel enforces no network policies",
			string(c.Name), "state flannel, cilium or none")
	}

	if c.Name == spec.CNICilium {
		r.checkCilium(p)
	} else if c.Version != "" {
		r.problems.Add("cluster.cni.version", "belongs to Cilium", c.Version,
			"leave it out, or set cluster.cni.name to cilium")
	}

	if c.Name != spec.CNICilium && c.Values != nil {
		r.problems.Add("cluster.cni.values", "belongs to Cilium", "", "leave it out, or set cluster.cni.name to cilium")
	}

	if c.Name == spec.CNIFlannel && !*c.KubeProxy {
		r.problems.Add("cluster.cni.kubeProxy", "cannot be false with Flannel, which does not stand in for kube-proxy",
			"false",
			"leave it out, or set cluster.cni.name to cilium or none")
	}
}

// checkCilium holds what the installation of Cilium needs.
func (r *resolver) checkCilium(p *Plan) {
	c := r.spec.Cluster.CNI
	p.CNIValues = c.Values

	r.checkKubeProxyReplacement(*c.KubeProxy, c.Values["kubeProxyReplacement"])

	v, ok := r.version("cluster.cni.version", c.Version, "1.18.4")
	p.CNIVersion = strings.TrimPrefix(v, "v")

	if ok && minor(v) < 16 {
		r.problems.Add("cluster.cni.version", "must be 1.16 or later: nothing older can be installed", c.Version, "raise it")
	}

	// The job that installs it has a sidecar.
	if p.Kubernetes != "" && minor(p.Kubernetes) < 29 {
		r.problems.Add("cluster.cni.name", "needs Kubernetes 1.29 or later to be installed", string(c.Name),
			"raise cluster.versions.kubernetes")
	}
}

// checkKubeProxyReplacement: Services have one program that serves them, kube-proxy or Cilium.
func (r *resolver) checkKubeProxyReplacement(kubeProxy bool, value any) {
	const path = "cluster.cni.values.kubeProxyReplacement"

	replaces, err := strconv.ParseBool(fmt.Sprint(value))

	switch {
	case value == nil:
	case err != nil:
		r.problems.Add(path, "must be true or false", fmt.Sprint(value), "leave it out: it follows cluster.cni.kubeProxy")
	case replaces && kubeProxy:
		r.problems.Add(path, "cannot be true with kube-proxy: both would serve every Service", "true",
			"leave it out, and set cluster.cni.kubeProxy to false")
	case !replaces && !kubeProxy:
		r.problems.Add(path, "cannot be false without kube-proxy: nothing would serve Services", "false",
			"leave it out, or set cluster.cni.kubeProxy to true")
	}
}

func (r *resolver) checkTailscale() {
	t := r.spec.Tailscale
	if t == nil {
		return
	}

	if !r.spec.Provided.TailscaleKey && r.spec.Cluster.Bootstrap != spec.BootstrapExternal {
		r.problems.Add("tailscaleAuthKey", "is required: tailscale is set", "",
			"run: pulumi config set --secret tailscaleAuthKey, or set HEADSCALE_AUTH_KEY in the environment")
	}

	if u, err := url.Parse(t.LoginServer); t.LoginServer != "" &&
		(err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		r.problems.Add("tailscale.loginServer", "must be a URL", t.LoginServer, "write it like https://headscale.example.com")
	}

	if t.Pools != nil && len(t.Pools) == 0 {
		r.problems.Add("tailscale.pools", "must name a pool: no node would join", "[]",
			"leave it out for all pools, or remove tailscale")
	}

	for i, name := range t.Pools {
		if _, ok := r.spec.Pools[name]; !ok {
			r.problems.Add(at("tailscale.pools", i), "is not a pool", name, "name one of pools")
		}
	}

	if t.AdvertiseEndpoint {
		r.checkAdvertised()
	}
}

// checkAdvertised: the control planes forward to an address that all of them can have.
func (r *resolver) checkAdvertised() {
	const path = "tailscale.advertiseEndpoint"

	if r.spec.Cluster.Endpoint.Address == "" {
		r.problems.Add(path, "needs cluster.endpoint.address", "true", "set cluster.endpoint.mode to vip or kubeVip")
	}

	for _, p := range r.pools {
		if p.Role == spec.RoleControlPlane && !r.joinsTailnet(p) {
			r.problems.Add(path, "needs the control planes in the tailnet; those of pool "+p.name+" do not join", "true",
				"add the pool to tailscale.pools")
		}
	}
}

// joinsTailnet says whether the nodes of a pool are to join.
func (r *resolver) joinsTailnet(p *pool) bool {
	t := r.spec.Tailscale

	return t != nil && (t.Pools == nil || slices.Contains(t.Pools, p.name))
}

// checkWorkerConfiguration: the configuration of a pool is good for other machines where it names no image of one node.
func (r *resolver) checkWorkerConfiguration(p *Plan) {
	const path = "outputs.workerConfiguration"

	name := r.spec.Outputs.WorkerConfiguration
	if name == "" {
		return
	}

	at := slices.IndexFunc(p.Pools, func(pool PlannedPool) bool {
		return pool.Name == name && pool.Role == spec.RoleWorker
	})

	switch {
	case at < 0:
		r.problems.Add(path, "must be a pool of workers", name, "name one of pools; it may have the count 0")
	case p.Pools[at].Image.Scope == PerNode:
		r.problems.Add(path, "is of no use to other machines: each node of the pool installs an image with its own address",
			name, "name a pool with another image, or set image.platform to nocloud")
	}
}

func (r *resolver) checkOutputs(p *Plan) {
	if r.spec.Outputs.Files == nil {
		return
	}

	f := *r.spec.Outputs.Files
	f.Dir = cmp.Or(f.Dir, "./talos")
	p.Outputs.Files = &f

	if clean := path.Clean(f.Dir); path.IsAbs(f.Dir) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
		r.problems.Add("outputs.files.dir", "must be a directory inside the project", f.Dir, "write it like ./talos")
	}

	if len(f.Write) == 0 {
		r.problems.Add("outputs.files.write", "is required: which files?", "",
			"name them, for example [talosconfig, kubeconfig]")
	}

	for i, name := range f.Write {
		oneOf(r, at("outputs.files.write", i), name, "talosconfig", "kubeconfig", "control-plane.yaml", "worker.yaml",
			"secrets.yaml")

		if name == "worker.yaml" && !slices.ContainsFunc(r.pools, func(p *pool) bool { return p.Role == spec.RoleWorker }) {
			r.problems.Add(at("outputs.files.write", i), "needs a pool of workers", string(name), "leave it out")
		}
	}
}
