package hosts

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// lackingHosts is one in which everything is missing.
type lackingHosts struct {
	preflighttest.ManyHosts

	hosts   []proxmoxapi.Host
	stores  map[string]proxmoxapi.Store
	bridges []proxmoxapi.Bridge
}

func (c *lackingHosts) Hosts(context.Context) ([]proxmoxapi.Host, error) { return c.hosts, nil }

func (c *lackingHosts) Stores(_ context.Context, host string) (map[string]proxmoxapi.Store, error) {
	if host == c.Unreachable {
		return nil, proxmoxapi.ErrHostUnreachable
	}

	return c.stores, nil
}

func (c *lackingHosts) Bridges(context.Context, string) ([]proxmoxapi.Bridge, error) {
	return c.bridges, nil
}

// read has read a Proxmox VE for a plan.
func read(t *testing.T, p *plan.Plan, proxmox checks.Proxmox) Checker {
	t.Helper()

	c := Checker{checks.New(p, proxmox)}
	require.NoError(t, c.Read(t.Context()))

	return c
}

// check checks what hosts have for new nodes.
func check(t *testing.T, p *plan.Plan, proxmox checks.Proxmox) error {
	t.Helper()

	c := read(t, p, proxmox)
	require.NoError(t, c.CheckHosts(t.Context()))

	return c.Problems.Unique().Err()
}

// TestHosts: all that hosts lack for new nodes is said at once, and nothing of it matters when the nodes are there.
func TestHosts(t *testing.T) {
	s := spec.Spec{
		Proxmox: spec.Proxmox{
			Hosts:   []spec.Host{{Name: "a"}, {Name: "b"}, {Name: "pve"}},
			Storage: spec.Storage{Images: "nfs", Disks: "tank"},
		},
		Cluster:   spec.Cluster{Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Network:   spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
		Placement: spec.Placement{Strategy: spec.StrategySpread},
		Pools:     map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}},
	}
	p := plantest.New(t, s)

	online := []proxmoxapi.Host{{Name: "a", Online: true, CPUs: 64, MemoryMiB: 1 << 20}, {Name: "b", Online: true, CPUs: 64, MemoryMiB: 1 << 20}, {Name: "pve", Online: true, CPUs: 64, MemoryMiB: 1 << 20}}
	good := map[string]proxmoxapi.Store{
		"tank": {Content: []string{"images"}, Active: true, Free: 400 << 30}, "nfs": {Content: []string{"iso"}, Active: true},
	}

	h := &lackingHosts{hosts: online, stores: good, bridges: []proxmoxapi.Bridge{{Name: "vmbr0"}}}
	err := check(t, p, h)
	require.NoError(t, err)

	err = check(t, p, &lackingHosts{hosts: []proxmoxapi.Host{
		{Name: "A", Online: true},
		{Name: "b"},
		{Name: "pve", Online: true},
	}, ManyHosts: preflighttest.ManyHosts{Unreachable: "pve"}})
	require.EqualError(t, err, `the configuration has 3 problems:
  - proxmox.hosts: not found in this Proxmox VE, which has the hosts A, b, pve (given: a); correct the name; case matters
  - proxmox.hosts: is offline, but new nodes are planned on it (given: b); start it, or take it out
  - proxmox.hosts: does not answer, but new nodes are planned on it (given: pve); repair it, or take it out`)

	one := s
	one.Proxmox.Hosts = s.Proxmox.Hosts[:1]

	err = check(t, plantest.New(t, one),
		&lackingHosts{hosts: online, stores: map[string]proxmoxapi.Store{"nfs": {
			Content: []string{"backup", "vztmpl"},
			Active:  true,
		}}})
	require.EqualError(t, err, `the configuration has 3 problems:
  - pools.control.disk.datastore: datastore not found on host a, or the credentials lack its privileges (given: tank); name another, or grant Datastore.AllocateSpace and Datastore.Audit on it
  - proxmox.storage.images: does not accept iso on host a (given: nfs, which takes backup, vztmpl); run 'pvesm set nfs --content backup,vztmpl,iso', or name another datastore
  - pools.control.nics: bridge not found on host a, or the credentials lack SDN.Use on it (given: vmbr0); name another, make it there, or grant SDN.Use on it`)

	off := map[string]proxmoxapi.Store{"tank": {Content: []string{"images"}}, "nfs": good["nfs"]}
	err = check(t, plantest.New(t, one),
		&lackingHosts{hosts: online, stores: off, bridges: []proxmoxapi.Bridge{{Name: "vmbr0"}}})
	require.EqualError(t, err, `the configuration has 1 problem:
  - pools.control.disk.datastore: is not active on host a (given: tank); switch it on there, or name another`)

	full := &lackingHosts{
		ManyHosts: preflighttest.ManyHosts{Listed: []proxmoxapi.VM{
			{ID: 100, Name: "other", Host: "a", MemoryMiB: 30000},
			{ID: 9000, Name: "base", Host: "a", Template: true, MemoryMiB: 9999},
		}},
		hosts:   []proxmoxapi.Host{{Name: "a", Online: true, CPUs: 64, MemoryMiB: 32768}},
		bridges: []proxmoxapi.Bridge{{Name: "vmbr0"}},
		stores: map[string]proxmoxapi.Store{
			"tank": {Content: []string{"images"}, Active: true, Free: 100 << 30},
			"nfs":  good["nfs"],
		},
	}
	c := read(t, plantest.New(t, one), full)
	require.NoError(t, c.CheckHosts(t.Context()))
	assert.Equal(t, spec.Problems{
		{
			Path: "proxmox.hosts", Rule: "has 32768 MiB of memory, but its guests are allocated 30000 MiB, and new " +
				"nodes 12288 MiB",
			Value:  "a",
			Remedy: "make sure that not all of it is used at once, make nodes smaller, or place them elsewhere",
		},
		{
			Path: "proxmox.storage", Rule: "has 100 GiB free on host a, and the disks of new nodes may grow to 120 GiB",
			Value:  "tank",
			Remedy: "make room, or make disks smaller (diskGiB)",
		},
	}, c.Warnings)

	full.stores["tank"] = proxmoxapi.Store{Content: []string{"images"}, Active: true, Shared: true, Free: 100 << 30}
	full.hosts = online
	c = read(t, p, full)
	require.NoError(t, c.CheckHosts(t.Context()))
	assert.Contains(t, c.Warnings, spec.Problem{
		Path: "proxmox.storage", Value: "tank",
		Rule:   "has 100 GiB free for all hosts together, and the disks of new nodes may grow to 120 GiB",
		Remedy: "make room, or make disks smaller (diskGiB)",
	})

	there := &lackingHosts{}
	for _, n := range p.Nodes() {
		there.Listed = append(there.Listed, proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: n.Host})
	}

	err = check(t, p, there)
	require.NoError(t, err, "nodes that are there ask for nothing")
}

// TestIOUring: a disk for which Proxmox VE itself would choose another mode than io_uring is warned of.
func TestIOUring(t *testing.T) {
	disk := func(datastore, aio, cache string) plan.Disk {
		return plan.Disk{Datastore: datastore, AIO: aio, Cache: cache, SizeGiB: 40}
	}

	warning := func(path, where, mode string) spec.Problem {
		return spec.Problem{
			Path: path, Rule: "can make disks on a datastore of type " + where + " hang or fail, so that Proxmox VE does " +
				"not use it there unless it is set", Value: "io_uring on " + where, Remedy: "set " + mode,
		}
	}

	for name, c := range map[string]struct {
		template string
		disks    []plan.Disk
		want     spec.Problems
	}{
		"thin": {disks: []plan.Disk{disk("thin", "io_uring", "none")}},
		"set":  {disks: []plan.Disk{disk("lvm", "native", "none"), disk("cifs", "threads", "writeback")}},
		"io_uring": {
			disks: []plan.Disk{disk("lvm", "io_uring", "none"), disk("cifs", "io_uring", "writeback")},
			want: spec.Problems{
				warning("pools.a.disk.aio", "lvm", "native"), warning("pools.a.extraDisks[0].aio", "cifs", "threads"),
			},
		},
		"a clone": {
			template: "9000", disks: []plan.Disk{disk("lvm", "io_uring", "none"), disk("lvm", "io_uring", "none")},
			want: spec.Problems{warning("pools.a.extraDisks[0].aio", "lvm", "native")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			stores := map[string]proxmoxapi.Store{}
			for _, kind := range []string{"thin", "lvm", "cifs"} {
				stores[kind] = proxmoxapi.Store{Type: kind, Content: []string{"images"}, Active: true, Free: 1 << 50}
			}

			r := read(t, &plan.Plan{Pools: []plan.PlannedPool{{Name: "a", Nodes: []plan.Node{
				{Name: "a-1", Host: "pve", Pool: "a", VMID: 401, Template: c.template, Disks: c.disks},
			}}}}, &lackingHosts{hosts: []proxmoxapi.Host{{Name: "pve", Online: true}}, stores: stores})
			require.NoError(t, r.CheckHosts(t.Context()))
			assert.Equal(t, c.want, r.Warnings.Unique())
		})
	}
}
