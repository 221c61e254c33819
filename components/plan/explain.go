package plan

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"talos-proxmox/components/spec"
)

// Decision is one thing that was decided, and what it came from.
type Decision struct {
	// Of is what it is about: "cluster" or the path of a pool.
	Of string
	// What was decided, and how.
	What, Value string
	// From is the configuration key that decided it, or says that it is a default or follows from other keys.
	From string
}

// ByDefault is where a decision comes from that no key has made.
const ByDefault = "default"

// Explain says where the decisions of a plan came from. The spec is the one that the plan was made of.
func Explain(asked spec.Spec, p *Plan) []Decision {
	e := explainer{spec: asked, plan: p}
	e.cluster()

	for _, pool := range p.Pools {
		e.pool(pool)
	}

	return e.all
}

type explainer struct {
	spec spec.Spec
	plan *Plan
	all  []Decision
}

func (e *explainer) add(of, what, value, from string) {
	if value != "" {
		e.all = append(e.all, Decision{of, what, value, from})
	}
}

// decidedBy is the key when it was, else what otherwise decides.
func decidedBy(was bool, key, fallback string) string {
	if was {
		return key
	}

	return fallback
}

func (e *explainer) cluster() {
	s, p := e.spec, e.plan
	add := func(what, value, from string) { e.add("cluster", what, value, from) }

	add("environment", string(p.Environment), decidedBy(s.Environment != "", "environment", ByDefault))

	if p.Distribution == spec.DistributionK3s {
		e.k3s()
	} else {
		add("bootstrap", string(p.Bootstrap), decidedBy(s.Cluster.Bootstrap != "", "cluster.bootstrap", ByDefault))
		add("boot source", string(p.Source), decidedBy(s.Image.Source != "", "image.source", ByDefault))
		add("platform", string(p.Platform), decidedBy(s.Image.Platform != "", "image.platform",
			"default for image.source "+string(p.Source)))
		add("addressing", string(p.Addressing), decidedBy(s.Network.Addressing != "", "network.addressing",
			fmt.Sprintf("default for a %s %s", p.Platform, p.Source)))
	}

	mode := decidedBy(s.Cluster.Endpoint.Mode != "", "cluster.endpoint.mode", ByDefault)

	switch p.EndpointMode {
	case spec.EndpointVIP, spec.EndpointKubeVIP:
		add("endpoint", p.Endpoint, mode+", cluster.endpoint.address")
	case spec.EndpointDNS:
		add("endpoint", p.Endpoint, mode+", cluster.endpoint.host")
	case spec.EndpointFirstControlPlane:
		endpoint := p.Endpoint
		if endpoint == "" {
			endpoint = "the first control plane, once its address is known"
		}

		add("endpoint", endpoint, mode+": "+string(p.EndpointMode))
	}

	if p.Bootstrap == spec.BootstrapPulumi && p.Distribution == spec.DistributionTalos {
		cni := strings.TrimSpace(string(p.CNI) + " " + p.CNIVersion)
		add("pod network", cni, decidedBy(s.Cluster.CNI.Name != "", "cluster.cni.name", ByDefault))
		add("discovery", string(p.Discovery), decidedBy(s.Cluster.Discovery != "", "cluster.discovery", ByDefault))
		add("kube-proxy", onOff(p.KubeProxy), decidedBy(s.Cluster.CNI.KubeProxy != nil, "cluster.cni.kubeProxy", ByDefault))
	}

	if p.Addressing == spec.AddressingStatic {
		add("nameservers", join(p.Nameservers), decidedBy(s.Network.Nameservers != nil, "network.nameservers", ByDefault))
	}

	add("placement", string(p.Strategy), decidedBy(s.Placement.Strategy != "", "placement.strategy", ByDefault))
	add("firewall", onOff(p.Firewall), decidedBy(s.Firewall.Enabled != nil, "firewall.enabled",
		"default for environment "+string(p.Environment)))
}

// k3s are the decisions that a cluster of K3s has instead of Talos'.
func (e *explainer) k3s() {
	s, p := e.spec, e.plan
	add := func(what, value, from string) { e.add("cluster", what, value, from) }

	k := spec.K3s{}
	if s.K3s != nil {
		k = *s.K3s
	}

	token := "made, and kept in state"
	if p.K3s.TokenProvided {
		token = "the configuration's"
	}

	var keys []string

	if len(k.SSHKeys) > 0 {
		keys = append(keys, Count(len(k.SSHKeys), "public key"))
	}

	if k.GenerateSSHKey {
		keys = append(keys, "a key pair that is made")
	}

	add("kind", string(p.Distribution), "cluster.kind")
	add("boot source", string(p.Source), decidedBy(s.Image.Source != "", "image.source", "default for cluster.kind k3s"))
	add("addressing", string(p.Addressing), decidedBy(s.Network.Addressing != "", "network.addressing", ByDefault))
	add("pod network", p.K3s.Pods.String(),
		decidedBy(s.K3s != nil && s.K3s.ClusterCIDR != "", "k3s.clusterCIDR", ByDefault))
	add("service network", p.K3s.Services.String(),
		decidedBy(s.K3s != nil && s.K3s.ServiceCIDR != "", "k3s.serviceCIDR", ByDefault))
	add("token", token, decidedBy(p.K3s.TokenProvided, "k3sToken", ByDefault))
	add("left out of K3s", strings.Join(k.Disable, ", "), "k3s.disable")
	add("arguments of servers", shownArgs(k.ServerArgs), "k3s.serverArgs")
	add("arguments of agents", shownArgs(k.AgentArgs), "k3s.agentArgs")
	add("SSH user", p.K3s.User+" with "+orNothing(strings.Join(keys, " and ")),
		decidedBy(k.User != "", "k3s.user", ByDefault))
	add("package upgrade", onOff(p.K3s.Upgrade), decidedBy(k.UpgradePackages != nil, "k3s.upgradePackages", ByDefault))
	add("user data", "snippets on "+p.K3s.Snippets,
		decidedBy(s.Proxmox.Storage.Snippets != "", "proxmox.storage.snippets", ByDefault))
}

// shownArgs are arguments on one line, without the values that hold a secret somewhere.
func shownArgs(args []string) string {
	all := make([]string, 0, len(args))

	for _, arg := range args {
		if name, _, found := strings.Cut(arg, "="); found && spec.HideSecrets(arg) != arg {
			arg = name + "=***"
		}

		all = append(all, arg)
	}

	return strings.Join(all, " ")
}

func (e *explainer) pool(p PlannedPool) {
	if len(p.Nodes) == 0 {
		return
	}

	asked, path := e.spec.Pools[p.Name], "pools."+p.Name
	first, last := p.Nodes[0], p.Nodes[len(p.Nodes)-1]
	add := func(what, value, from string) { e.add(path, what, value, from) }

	way := "count"
	if asked.Nodes != nil {
		way = "nodes"
	} else if asked.GPUs != nil {
		way = "gpus"
	}

	add("nodes", fmt.Sprint(len(p.Nodes)), path+"."+way)
	add("names", ends(first.Name, last.Name),
		decidedBy(asked.Names != "", path+".names", ByDefault+" {cluster}-{pool}-{n}"))
	add("VMIDs", ends(fmt.Sprint(first.VMID), fmt.Sprint(last.VMID)),
		decidedBy(asked.VMIDs != "", path+".vmids", "default for the only pool of its kind"))
	add("MAC addresses", "one of each node's own, the first "+first.MAC, "cluster.name and the nodes' names")

	if first.Address.IsValid() {
		add("addresses", ends(first.Address.String(), last.Address.String()), path+".addresses")
	} else {
		from := "network.addressing " + string(e.plan.Addressing)
		add("addresses", "not known in advance", from)
	}

	var hosts []string
	for _, n := range p.Nodes {
		hosts = append(hosts, n.Host)
	}

	placed := decidedBy(e.spec.Placement.Strategy != "", "placement.strategy", ByDefault) + ": " + string(e.plan.Strategy)

	switch {
	case asked.Host != "":
		placed = path + ".host"
	case len(e.spec.Proxmox.Hosts) == 1:
		placed = "proxmox.hosts, the only one"
	case asked.GPUs != nil:
		placed = path + ".gpus, the hosts of the GPUs"
	}

	add("hosts", strings.Join(shortList(hosts), ", "), placed)
	e.image(path, p)
	e.vmSpec(path, asked, first)

	for _, key := range slices.Sorted(maps.Keys(asked.Nodes)) {
		e.own(path+".nodes."+key, asked.Nodes[key])
	}

	for _, key := range slices.Sorted(maps.Keys(asked.GPUs)) {
		g := asked.GPUs[key]
		e.add(path, "GPU of node "+key, g.BDF, path+".gpus."+key+".bdf")
		e.own(path+".gpus."+key, g.NodeSpec)
	}
}

func (e *explainer) image(path string, p PlannedPool) {
	b, n := p.Image, p.Nodes[0]
	asked := e.spec.Pools[p.Name]
	add := func(what, value, from string) { e.add(path, what, value, from) }

	switch {
	case b.Template != "":
		add("template", b.Template, b.Path)
	case b.ISO() && b.Volume+b.URL != "":
		add("ISO file", b.Volume+b.URL, b.Path)
	case b.Volume+b.URL != "":
		add("cloud image", b.Volume+b.URL, b.Path)
	default:
		add("image", fmt.Sprintf("%s %s, one per %s", e.plan.Platform, b.Format, b.Scope), e.scope(path, b))
	}

	if b.SchematicID != "" {
		add("schematic", b.SchematicID, decidedBy(asked.Image.Schematic != nil, path+".image.schematic", "image.schematic"))
	}

	if b.SecureBoot {
		add("SecureBoot", onOff(true), decidedBy(asked.Image.SecureBoot != nil, path+".image.secureBoot", "image.secureBoot"))
	}

	from := "image.schematic"
	if b.FactoryURL != "" {
		from = "image.factory.extensions"
	}

	if asked.Image.Schematic != nil {
		from = path + ".image.schematic"
	} else if asked.Image.Extensions != nil {
		from += ", " + path + ".image.extensions"
	}

	add("extensions", strings.Join(b.Extensions, ", "), from)
	add("kernel arguments", spec.HideSecrets(strings.Join(b.KernelArgs, " ")), e.kernelArgs(path, b))

	switch {
	case e.plan.Distribution == spec.DistributionK3s:
		add("guest agent", onOff(n.Agent), "cluster.kind k3s installs it")
		add("cloud-init drive", n.CloudInit, "cluster.kind k3s")
	case n.CloudInit != "":
		add("guest agent", onOff(n.Agent), "follows from the extensions")
		add("cloud-init drive", n.CloudInit, "network.addressing static on image.platform nocloud")
	default:
		add("guest agent", onOff(n.Agent), "follows from the extensions")
		add("cloud-init drive", "none", fmt.Sprintf("network.addressing %s on image.platform %s", e.plan.Addressing,
			e.plan.Platform))
	}

	if n.BootOrder != nil {
		add("boot order", strings.Join(n.BootOrder, ", "), "follows from image.source "+string(e.plan.Source))
	}
}

func (e *explainer) scope(path string, b BootImage) string {
	switch b.Scope {
	case PerNode:
		return "network.addressing static on image.platform metal: the address is in the image"
	case PerPool:
		return path + ".image"
	default:
		return "image.factory"
	}
}

func (e *explainer) kernelArgs(path string, b BootImage) string {
	var from []string

	if e.spec.Image.Factory.KernelArgs != nil {
		from = append(from, "image.factory.kernelArgs")
	}

	if e.spec.Pools[strings.TrimPrefix(path, "pools.")].Image.KernelArgs != nil {
		from = append(from, path+".image.kernelArgs")
	}

	if b.Scope == PerNode {
		from = append(from, "META names the link eth0")
	}

	return strings.Join(from, ", ")
}

// vmSpec says of each value of the VM whether the pool, the defaults or nothing states it.
func (e *explainer) vmSpec(path string, asked spec.Pool, first Node) {
	levels := []struct {
		path string
		v    reflect.Value
	}{
		{path, reflect.ValueOf(asked.VMSpec)},
		{"defaults", reflect.ValueOf(e.spec.Defaults)},
		{"", reflect.ValueOf(spec.DefaultVM(e.spec.Cluster.Distribution))},
	}

	var walk func(prefix string, at []int, t reflect.Type)

	walk = func(prefix string, at []int, t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			index := append(slices.Clone(at), i)

			if first.Template != "" && prefix == "disk." && name != "datastore" && name != "interface" {
				continue // the template's
			}

			if f.Type.Kind() == reflect.Struct {
				walk(prefix+name+".", index, f.Type)

				continue
			}

			for _, level := range levels {
				v := level.v.FieldByIndex(index)
				if v.IsNil() {
					continue
				}

				from := ByDefault
				if level.path != "" {
					from = level.path + "." + prefix + name
				}

				e.add(path, prefix+name, show(v), from)

				break
			}
		}
	}

	walk("", nil, reflect.TypeFor[spec.VMSpec]())

	if asked.Protection == nil && e.spec.Defaults.Protection == nil {
		from := ByDefault
		if first.Protection {
			from = "default for control planes in " + string(spec.EnvironmentProduction)
		}

		e.add(path, "protection", show(reflect.ValueOf(&first.Protection)), from)
	}

	if asked.GPUs != nil && asked.Machine == nil && e.spec.Defaults.Machine == nil {
		e.add(path, "machine", first.Machine, path+".gpus: a GPU needs PCI Express")
	} else if first.Template == "" && asked.Machine == nil && e.spec.Defaults.Machine == nil {
		e.add(path, "machine", first.Machine, ByDefault)
	}

	if first.Template == "" && asked.Firmware == nil && e.spec.Defaults.Firmware == nil {
		e.add(path, "firmware", first.Firmware, ByDefault)
	}
}

// own says what a node states itself.
func (e *explainer) own(path string, n spec.NodeSpec) {
	pool, node, _ := strings.Cut(path, ".nodes.")
	if i := strings.Index(path, ".gpus."); i >= 0 {
		pool, node = path[:i], path[i+len(".gpus."):]
	}

	for _, v := range []struct{ key, value string }{{"host", n.Host}, {"mac", n.MAC}, {"address", n.Address}} {
		e.add(pool, v.key+" of node "+node, v.value, path+"."+v.key)
	}

	v := reflect.ValueOf(n.VMSpec)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if f := v.Field(i); f.Kind() != reflect.Struct && !f.IsNil() {
			e.add(pool, name+" of node "+node, show(f), path+"."+name)
		}
	}
}

func show(v reflect.Value) string {
	switch v.Kind() { //nolint:exhaustive // a VMSpec holds no other kinds
	case reflect.Pointer:
		if v.Elem().Kind() == reflect.Struct {
			return "set"
		}

		return fmt.Sprint(v.Elem().Interface())
	case reflect.Map:
		m := v.Interface().(map[string]string)

		var all []string
		for _, key := range slices.Sorted(maps.Keys(m)) {
			all = append(all, key+"="+m[key])
		}

		return strings.Join(all, ", ")
	default:
		if tags, ok := v.Interface().([]string); ok {
			return strings.Join(tags, ", ")
		}

		return fmt.Sprintf("%d", v.Len())
	}
}

func orNothing(text string) string {
	if text == "" {
		return "no key: logging in is not possible"
	}

	return text
}

func onOff(on bool) string {
	if on {
		return "on"
	}

	return "off"
}

func ends(first, last string) string {
	if first == last {
		return first
	}

	return first + " to " + last
}

func join[T fmt.Stringer](values []T) string {
	var all []string
	for _, v := range values {
		all = append(all, v.String())
	}

	return strings.Join(all, ", ")
}

// shortList cuts a long list in the middle.
func shortList(all []string) []string {
	if len(all) <= 8 {
		return all
	}

	return append(append(slices.Clone(all[:6]), "..."), all[len(all)-1])
}
