package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

var (
	// dnsLabel is RFC 1123: what Kubernetes takes for a node name's parts and Proxmox for a VM name's.
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// version admits what Talos and Kubernetes release, with or without the leading v.
	version = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?)$`)
	// canonical is the naming rule of the templates.
	canonical = regexp.MustCompile(`^talos-(v\d+\.\d+\.\d+)-base$`)
	// diskInterface are the buses that Talos can boot from, as Proxmox numbers them.
	diskInterface = regexp.MustCompile(`^(scsi([0-9]|[12][0-9]|30)|virtio([0-9]|1[0-5])|sata[0-5])$`)
	// tag is what Proxmox VE stores as it is given.
	tag = regexp.MustCompile(`^[a-z0-9_][a-z0-9_\-+.]*$`)
)

// checkModes refuses values that do not exist, and modes that this version does not build.
func (r *resolver) checkModes() {
	s := &r.spec
	oneOf(r, "environment", s.Environment, Lab, Production)

	mode(r, "cluster.bootstrap", s.Cluster.Bootstrap, []Owner{ByPulumi}, External)
	mode(r, "cluster.endpoint.mode", s.Cluster.Endpoint.Mode, []EndpointMode{FirstControlPlane}, VIP, DNS, KubeVIP)
	mode(r, "image.source", s.Image.Source, []Source{Template}, ISO, Factory)
	mode(r, "image.platform", s.Image.Platform, []Platform{Metal}, NoCloud)
	mode(r, "network.addressing", s.Network.Addressing, []Addressing{Reserved}, Static, Agent, Reported)
}

// mode checks a mode against the values that are built and those that are known but not built yet.
func mode[T ~string](r *resolver, path string, value T, built []T, known ...T) {
	switch {
	case slices.Contains(built, value):
	case slices.Contains(known, value):
		r.problems.Add(path, "is not built yet", string(value), "this version knows "+list(built))
	default:
		oneOf(r, path, value, append(built, known...)...)
	}
}

func oneOf[T ~string](r *resolver, path string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		r.problems.Add(path, "must be one of "+list(allowed), string(value), "choose one of them")
	}
}

func list[T ~string](values []T) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(string(v))
	}

	return strings.Join(quoted, ", ")
}

func (r *resolver) checkCluster() {
	c := r.spec.Cluster

	switch {
	case c.Name == "":
		r.problems.Add("cluster.name", "is required", "", "give the cluster a name, for example k3s-dev")
	case !dnsLabel.MatchString(c.Name):
		r.problems.Add("cluster.name", "must be a DNS label: lower case letters, digits and dashes", c.Name, "rename it")
	}

	controls, pools := 0, 0

	for _, name := range slices.Sorted(maps.Keys(r.spec.Pools)) {
		if pool := r.spec.Pools[name]; pool.Role == ControlPlane {
			controls += pool.Count
			pools++
		}
	}

	switch {
	case controls == 0:
		r.problems.Add("pools", "need at least one control plane", "", "add a pool with role: controlplane and count: 1")
	case c.HA && (controls < 3 || controls%2 == 0):
		r.problems.Add("cluster.ha", "needs an odd number of control planes, three at least", count(controls, "control plane"),
			"set the count to 3 or 5, or ha to false")
	case controls%2 == 0:
		r.warnings = append(r.warnings, Problem{
			Path: "pools", Rule: "an even number of control planes tolerates no more failures than one less",
			Value: count(controls, "control plane"), Remedy: "use an odd number",
		})
	}
}

// versions checks the pair against the compatibility table that Talos itself uses.
func (r *resolver) versions() (talos, kubernetes string) {
	v := r.spec.Cluster.Versions
	talos, okTalos := r.version("cluster.versions.talos", v.Talos, "v1.12.4")
	kubernetes, okKubernetes := r.version("cluster.versions.kubernetes", v.Kubernetes, "v1.34.2")

	if !okTalos || !okKubernetes {
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

func (r *resolver) version(path, given, example string) (string, bool) {
	m := version.FindStringSubmatch(given)

	switch {
	case given == "":
		r.problems.Add(path, "is required", "", "state it, for example "+example)
	case m == nil:
		r.problems.Add(path, "must be a full version", given, "write it like "+example)
	default:
		return "v" + m[1], true
	}

	return given, false
}

func (r *resolver) checkHosts() {
	seen := map[string]int{}

	for i, h := range r.spec.Hosts {
		path := fmt.Sprintf("proxmox.hosts[%d].name", i)

		if !dnsLabel.MatchString(strings.ToLower(h.Name)) {
			r.problems.Add(path, "must be the host's name as Proxmox VE shows it", h.Name, "correct it")
		} else if j, dup := seen[h.Name]; dup {
			r.problems.Add(path, fmt.Sprintf("is named twice, also by proxmox.hosts[%d]", j), h.Name, "remove one")
		}

		seen[h.Name] = i
	}

	switch n := len(r.spec.Hosts); {
	case n == 0:
		r.problems.Add("proxmox.hosts", "needs at least one host", "", "name it as Proxmox VE shows it, for example - name: pve")
	case n > 1:
		r.problems.Add("proxmox.hosts", "placement over several hosts is not built yet", count(n, "host"), "leave one host")
	}
}

func (r *resolver) checkNetwork() {
	n := r.spec.Network

	if n.CIDR == "" {
		r.problems.Add("network.cidr", "is required", "", "state the network of the nodes, for example 10.0.0.0/16")

		return
	}

	prefix, err := netip.ParsePrefix(n.CIDR)

	switch {
	case err != nil:
		r.problems.Add("network.cidr", "must be a network in CIDR form", n.CIDR, "write it like 10.0.0.0/16")
	case prefix != prefix.Masked():
		r.problems.Add("network.cidr", "must be the network's first address", n.CIDR, "write "+prefix.Masked().String())
	default:
		r.network = prefix
	}

	if n.Gateway == "" {
		return
	}

	gateway, err := netip.ParseAddr(n.Gateway)

	switch {
	case err != nil:
		r.problems.Add("network.gateway", "must be an address", n.Gateway, "write it like 10.0.0.1")
	case r.network.IsValid() && !r.network.Contains(gateway):
		r.problems.Add("network.gateway", "must lie inside network.cidr "+n.CIDR, n.Gateway, "correct one of the two")
	}
}

func (r *resolver) checkTemplates() {
	if r.spec.Image.Source != Template {
		return
	}

	t := r.spec.Image.Template

	if !diskInterface.MatchString(t.DiskInterface) {
		r.problems.Add("image.template.diskInterface", "must be a disk position that Talos boots from", t.DiskInterface,
			"write it like scsi0, virtio0 or sata0")
	}

	for _, role := range []struct {
		role     Role
		key, ref string
	}{{ControlPlane, "control", t.Control}, {Worker, "worker", t.Worker}} {
		path := "image.template." + role.key

		wanted := slices.ContainsFunc(slices.Collect(maps.Values(r.spec.Pools)), func(p Pool) bool {
			return p.Role == role.role && p.Count > 0
		})

		switch {
		case role.ref == "" && wanted:
			r.problems.Add(path, fmt.Sprintf("is required: there are %s nodes", role.role), "",
				"name the template or give its VMID, for example talos-v1.12.4-base")
		case role.ref != "":
			r.checkTemplate(path, role.ref)
		}
	}
}

// checkTemplate holds the naming rule. A VMID says nothing about what is in the template.
func (r *resolver) checkTemplate(path, ref string) {
	if _, err := strconv.Atoi(ref); err == nil || r.spec.Image.Template.AllowNonCanonicalName {
		return
	}

	m := canonical.FindStringSubmatch(ref)
	talos := version.FindStringSubmatch(r.spec.Cluster.Versions.Talos)

	switch {
	case m == nil:
		r.problems.Add(path, "must be called talos-v<major>.<minor>.<patch>-base", ref,
			"rename the template, give its VMID, or set image.template.allowNonCanonicalName")
	case talos != nil && m[1] != "v"+talos[1]:
		r.problems.Add(path, "holds another version than cluster.versions.talos v"+talos[1], ref,
			"change one of the two, or set image.template.allowNonCanonicalName")
	}
}

func (r *resolver) checkPool(path, name string, pool Pool) {
	if !dnsLabel.MatchString(name) {
		r.problems.Add(path, "must be a DNS label: lower case letters, digits and dashes", name, "rename the pool")
	}

	oneOf(r, path+".role", pool.Role, ControlPlane, Worker)

	if pool.Count < 0 {
		r.problems.Add(path+".count", "must not be negative", strconv.Itoa(pool.Count), "use 0 for no nodes")
	}

	if pool.Names != "" && !strings.Contains(pool.Names, "n}") {
		r.problems.Add(path+".names", "must hold the node's number", pool.Names, "add {n}, {nn} or {nnn}")
	}
}

func (r *resolver) checkShape(path string, s Shape) {
	for _, v := range []struct {
		key   string
		value int
		least int
		why   string
	}{
		{"cores", *s.Cores, 1, "a VM needs a core"},
		{"memoryMiB", *s.MemoryMiB, 1024, "Talos does not start with less"},
		{"diskGiB", *s.DiskGiB, 6, "Talos does not install on less"},
	} {
		if v.value < v.least {
			r.problems.Add(path+"."+v.key, fmt.Sprintf("must be at least %d: %s", v.least, v.why), strconv.Itoa(v.value), "raise it")
		}
	}

	for _, t := range s.Tags {
		if !tag.MatchString(strings.ToLower(t)) {
			r.problems.Add(path+".tags", "must hold letters, digits and _ - + . only, as Proxmox VE wants", t, "change the tag")
		}
	}
}

func (r *resolver) checkName(path, name string) {
	if !dnsLabel.MatchString(name) {
		r.problems.Add(path+".names", "must make DNS labels of at most 63 characters", name, "change the pattern, or the cluster's or the pool's name")
	}
}

// checkIdentity finds everything that two nodes share and must not, and addresses that no node may have.
func (r *resolver) checkIdentity(p *Plan) {
	names := map[string]string{}
	vmids := map[int]string{}
	macs := map[string]string{}
	addresses := map[netip.Addr]string{}

	for _, pool := range p.Pools {
		path := "pools." + pool.Name

		for _, n := range pool.Nodes {
			clash(r, names, n.Name, n.Name, path+".names", n.Name)

			if n.VMID != 0 {
				clash(r, vmids, n.VMID, n.Name, path+".vmids", strconv.Itoa(n.VMID))
			}

			clash(r, macs, n.MAC, n.Name, path, n.MAC)

			if n.Address.IsValid() {
				clash(r, addresses, n.Address, n.Name, path+".addresses", n.Address.String())
				r.checkAddress(path+".addresses", n)
			}
		}
	}
}

// clash notes who has a value and finds who had it before.
func clash[K comparable](r *resolver, seen map[K]string, key K, node, path, value string) {
	if other, dup := seen[key]; dup {
		r.problems.Add(path, "is used twice: by "+other+" and by "+node, value, "change one of the two pools")

		return
	}

	seen[key] = node
}

func (r *resolver) checkAddress(path string, n Node) {
	if !r.network.IsValid() {
		return
	}

	var rule string

	switch a := n.Address; {
	case !r.network.Contains(a):
		rule = "must lie inside network.cidr " + r.network.String()
	case a == r.network.Addr():
		rule = "must not be the network's own address"
	case a.Is4() && !r.network.Contains(a.Next()) && r.network.Bits() < 31:
		rule = "must not be the network's broadcast address"
	case a.String() == r.spec.Network.Gateway:
		rule = "must not be the gateway"
	default:
		return
	}

	r.problems.Add(path, rule, fmt.Sprintf("%s for %s", n.Address, n.Name), "move the range")
}
