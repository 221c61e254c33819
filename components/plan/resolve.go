package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"dario.cat/mergo"
)

// builtin is the shape of a VM that nothing is said about (the defaults of the VM module that this program replaces).
func builtin() Shape {
	return Shape{
		Cores: new(2), MemoryMiB: new(4096), DiskGiB: new(40), CPUType: new("host"), OnBoot: new(true),
	}
}

// resolver carries the problems while a spec is resolved. Each step goes on after a problem, so that all are found.
type resolver struct {
	spec     Spec
	network  netip.Prefix
	problems Problems
	warnings []Problem
}

func (r *resolver) resolve() *Plan {
	s := &r.spec
	r.defaults()

	p := &Plan{
		Environment: s.Environment,
		Cluster:     s.Cluster.Name,
		Bootstrap:   s.Cluster.Bootstrap,
		Source:      s.Image.Source,
		Platform:    s.Image.Platform,
		Patches:     s.Cluster.Patches,
	}

	r.checkModes()
	r.checkCluster()
	p.Talos, p.Kubernetes = r.versions()
	p.Installer = "ghcr.io/siderolabs/installer:" + p.Talos
	p.ReadyTimeout = r.duration("lifecycle.readyTimeout", s.Lifecycle.ReadyTimeout)
	p.NodeTimeout = r.duration("lifecycle.nodeTimeout", s.Lifecycle.NodeTimeout)
	r.checkHosts()
	r.checkNetwork()
	r.checkTemplates()
	p.Network = r.network
	p.Pools = r.pools()
	r.checkIdentity(p)

	if first := p.ControlPlanes(); len(first) > 0 && first[0].Address.IsValid() {
		p.Endpoint = "https://" + netip.AddrPortFrom(first[0].Address, 6443).String()
	}

	p.Warnings = r.warnings

	return p
}

// defaults fills in what an absent value means, where it means the same for every node.
func (r *resolver) defaults() {
	s := &r.spec
	setDefault(&s.Environment, Lab)
	setDefault(&s.Storage.Disks, "local-lvm")
	setDefault(&s.Cluster.Bootstrap, ByPulumi)
	setDefault(&s.Cluster.Endpoint.Mode, FirstControlPlane)
	setDefault(&s.Image.Source, Factory)
	setDefault(&s.Image.Template.DiskInterface, "scsi0")

	if s.Image.Source == Template {
		setDefault(&s.Image.Platform, Metal)
	}

	setDefault(&s.Image.Platform, NoCloud)

	if s.Image.Source == Template && s.Image.Platform == Metal {
		setDefault(&s.Network.Addressing, Reserved)
	}

	setDefault(&s.Network.Addressing, Static)
	setDefault(&s.Network.Bridge, "vmbr0")
	setDefault(&s.Lifecycle.ReadyTimeout, "10m")
	setDefault(&s.Lifecycle.NodeTimeout, "10m")
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (r *resolver) duration(path, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.problems.Add(path, "must be a time span above zero", text, "write it like 90s, 10m or 1h")
	}

	return d
}

// pools resolves the pools in plan order: control planes first, then by name.
func (r *resolver) pools() []PlannedPool {
	names := slices.SortedFunc(maps.Keys(r.spec.Pools), func(a, b string) int {
		if c := roleOrder(r.spec.Pools[a].Role) - roleOrder(r.spec.Pools[b].Role); c != 0 {
			return c
		}

		return strings.Compare(a, b)
	})

	planned := make([]PlannedPool, 0, len(names))
	for _, name := range names {
		planned = append(planned, r.pool(name, r.spec.Pools[name]))
	}

	return planned
}

func roleOrder(role Role) int {
	if role == ControlPlane {
		return 0
	}

	return 1
}

// pool gives each ordinal its name, VMID, MAC and address. Nothing here depends on other pools or on how many nodes there
// are, so growing a pool changes nothing that exists.
func (r *resolver) pool(name string, pool Pool) PlannedPool {
	path := "pools." + name
	r.checkPool(path, name, pool)

	vmids := r.vmidRange(path, pool)
	addresses := r.addressRange(path, pool)

	shape := pool.Shape
	for _, base := range []Shape{r.spec.Defaults, builtin()} {
		// Only nil pointers and empty lists are filled; both shapes are of one type, so this cannot fail.
		if err := mergo.Merge(&shape, base, mergo.WithoutDereference); err != nil {
			panic(err)
		}
	}

	r.checkShape(path, shape)

	planned := PlannedPool{Name: name, Role: pool.Role, Patches: pool.Patches}

	for n := 1; n <= pool.Count; n++ {
		node := Node{
			Name:          nodeName(pool.Names, r.spec.Cluster.Name, name, n),
			Pool:          name,
			Role:          pool.Role,
			Ordinal:       n,
			Template:      r.template(pool.Role),
			DiskInterface: r.spec.Image.Template.DiskInterface,
			Datastore:     r.spec.Storage.Disks,
			Cores:         *shape.Cores,
			MemoryMiB:     *shape.MemoryMiB,
			DiskGiB:       *shape.DiskGiB,
			CPUType:       *shape.CPUType,
			OnBoot:        *shape.OnBoot,
			Bridge:        r.spec.Network.Bridge,
			VLAN:          r.spec.Network.VLAN,
			Tags:          tags(r.spec.Cluster.Name, pool.Role, shape.Tags),
		}
		node.MAC = mac(r.spec.Cluster.Name, node.Name)

		if len(r.spec.Hosts) > 0 {
			node.Host = r.spec.Hosts[0].Name
		}

		if n <= vmids.len() {
			node.VMID = vmids.first + n - 1
		}

		if n <= len(addresses) {
			node.Address = addresses[n-1]
		}

		planned.Nodes = append(planned.Nodes, node)
	}

	if len(planned.Nodes) > 0 {
		r.checkName(path, planned.Nodes[len(planned.Nodes)-1].Name)
	}

	return planned
}

func (r *resolver) template(role Role) string {
	if role == ControlPlane {
		return r.spec.Image.Template.Control
	}

	return r.spec.Image.Template.Worker
}

// tags are sorted and without repetition, as Proxmox stores them: any other order would be a difference for ever.
func tags(cluster string, role Role, more []string) []string {
	all := append([]string{"talos", cluster, string(role)}, more...)
	for i := range all {
		all[i] = strings.ToLower(all[i])
	}

	slices.Sort(all)

	return slices.Compact(all)
}

func count(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}

	return fmt.Sprintf("%d %ss", n, noun)
}
