package preflight

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/world"
)

// testbed is a lab and a stack that is to be made in it.
type testbed struct {
	*testing.T
	*lab.Lab

	spec spec.Spec
	// access is what the stack logs in with.
	access proxmoxapi.Access
}

const limited = "limited@pve!token"

// newTestbed has all that the stack needs, for the stack as it is after the changes.
func newTestbed(t *testing.T, change ...func(*lab.Config)) *testbed {
	t.Helper()

	storages := []lab.Storage{
		{Name: "local-lvm", Type: "lvmthin", Content: []string{"images"}, SizeGiB: 500},
		{Name: "local", Type: "dir", Content: []string{"iso", "vztmpl"}, SizeGiB: 100},
	}
	c := lab.Config{
		Version: world.Version8,
		Hosts: []lab.Host{
			{Name: "a", VCPU: 8, MemoryMiB: 32768, Storages: storages, PCI: world.GPU("0000:01:00", 1)},
			{Name: "b", VCPU: 8, MemoryMiB: 32768, Storages: storages},
		},
		Templates: []lab.Template{{
			Name: "talos-v1.12.4-base", VMID: 9000, Host: "a", Storage: "local-lvm", DiskGiB: 10,
			Conf: map[string]string{"machine": "q35"},
		}},
	}

	for _, f := range change {
		f(&c)
	}

	l, err := lab.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, l.Journal().Unknown())
	})

	s := &testbed{T: t, Lab: l}
	l.World().AddToken(limited, "secret")
	l.World().Grant(limited, "/", world.Version8.Privileges()...)

	s.access = proxmoxapi.Access{Endpoint: l.Endpoint(), Insecure: true, TokenID: limited, TokenSecret: "secret"}
	s.spec = spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{
			{Name: "a", Capacity: &spec.Resources{VCPU: 8, MemoryMiB: 32768}},
			{Name: "b"},
		}},
		Cluster: spec.Cluster{
			Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"},
			Endpoint: spec.Endpoint{Mode: spec.EndpointVIP, Address: s.address(20)},
		},
		Image: spec.Image{
			Source: spec.SourceTemplate, Template: spec.TemplateImage{
				Control:               "talos-v1.12.4-base",
				GPUWorker:             "talos-v1.12.4-base",
				AllowNonCanonicalName: true,
			},
			Schematic: &spec.Schematic{Extensions: []string{"qemu-guest-agent"}},
		},
		Network: spec.Network{CIDR: l.Network().String()},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: spec.Range(s.address(11)), Host: "a"},
			"gpu": {Role: spec.RoleWorker, Addresses: spec.Range(s.address(31)), GPUs: map[string]spec.GPUSpec{
				"1": {BDF: "0000:01:00.0", NodeSpec: spec.NodeSpec{Host: "a"}},
			}},
		},
	}

	return s
}

// address is the nth of the network.
func (s *testbed) address(n int) string {
	at := s.Network().Addr().As4()
	at[3] = byte(n)

	return netip.AddrFrom4(at).String()
}

// pool changes a pool of the stack.
func (s *testbed) pool(name string, change func(*spec.Pool)) {
	p := s.spec.Pools[name]
	change(&p)
	s.spec.Pools[name] = p
}

// downloads makes the stack one that boots what a factory makes.
func (s *testbed) downloads() {
	s.spec.Image = spec.Image{Factory: spec.FactoryImage{URL: "https://factory.lan"}}
	s.spec.Network.Gateway = s.address(1)
	delete(s.spec.Pools, "gpu")
}

// isoFile makes the stack one that boots an ISO file.
func (s *testbed) isoFile(volume string) {
	s.downloads()
	s.spec.Image = spec.Image{Source: spec.SourceISO, ISO: spec.ISOImage{Volume: volume}}
}

// machine makes a foreign VM on host a, and starts it where it is to run.
func (s *testbed) machine(vmid int, running bool, settings map[string]string) {
	s.Helper()

	_, err := s.World().Create(world.Caller{ID: "root@pam"}, "a", world.CreateRequest{
		VMID: vmid, Conf: settings,
		Start: running,
	})
	require.NoError(s, err)
	require.Eventually(s, func() bool {
		v, err := s.World().VM("a", vmid)

		return err == nil && v.Lock == "" && v.Running == running
	}, 10*time.Second, time.Millisecond)
}

// listen answers at an address.
func (s *testbed) listen(n, port int) {
	s.Helper()

	l, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", s.address(n), port))
	require.NoError(s, err)
	s.Cleanup(func() { _ = l.Close() })
}

// without takes privileges away.
func (s *testbed) without(names ...string) {
	s.World().Grant(limited, "/", slices.DeleteFunc(slices.Clone(world.Version8.Privileges()),
		func(name string) bool { return slices.Contains(names, name) })...)
}

// findings are what the survey of the stack says: problems first, then warnings. The lab's network stands for N.
func (s *testbed) findings() []string {
	s.Helper()

	api, err := proxmoxapi.New(s.access)
	require.NoError(s, err)

	var said []string

	look := newChecker(plantest.New(s.T, s.spec), api, Dialer{})

	if err := explain(look.problems(s.Context())); err != nil {
		said = strings.Split(err.Error(), "\n  - ")[1:]
	}

	for _, w := range look.Warnings {
		said = append(said, "warning: "+w.String())
	}

	for i := range said {
		said[i] = strings.NewReplacer(strings.TrimSuffix(s.address(0), "0"), "N.", s.Endpoint(), "LAB").Replace(said[i])
	}

	return said
}

// finding is one thing that is wrong, and what is said of it.
type finding struct {
	config func(*lab.Config)
	change func(*testbed)
	want   []string
}

// ofTemplates is what is said of the template of both pools.
func nocloud(s *testbed) {
	s.spec.Image.Platform = spec.PlatformNoCloud
	s.spec.Network.Gateway = netip.MustParsePrefix(s.spec.Network.CIDR).Addr().Next().String()
}

func ofTemplates(text string) []string {
	return []string{"image.template.control: " + text, "image.template.gpuWorker: " + text}
}

const grant = "run 'pveum role modify TalosProxmox -append -privs %s', with the name of the role, and make sure " +
	"that the credentials have the role on that path"

func findings() map[string]finding {
	return map[string]finding{
		"nothing": {},
		"a secret that is wrong": {
			change: func(s *testbed) { s.access.TokenSecret = "other" },
			want: []string{"proxmox.tokenId: Proxmox VE at LAB refuses the credentials (GET /cluster/resources?type=vm): " +
				"invalid token value!; check it with proxmoxTokenSecret (or proxmox.username with proxmoxPassword), and that its role may do this"},
		},
		"a host that is offline": {
			config: func(c *lab.Config) { c.Hosts[1].Offline = true },
			change: func(s *testbed) { s.downloads(); s.pool("control", func(p *spec.Pool) { p.Host = "b" }) },
			want: []string{"proxmox.hosts: is offline, but new nodes are planned on it (given: b); start it, or " +
				"take it " +
				"out"},
		},
		"a host that is not there": {
			change: func(s *testbed) {
				s.downloads()
				s.spec.Proxmox.Hosts[0].Name = "A"
				s.pool("control", func(p *spec.Pool) { p.Host = "A" })
			},
			want: []string{"proxmox.hosts: not found in this Proxmox VE, which has the hosts a, b (given: A); correct the name; case " +
				"matters"},
		},
		"a host that is not there, and an ISO file": {
			change: func(s *testbed) {
				s.isoFile("nas:iso/talos.iso")
				s.spec.Proxmox.Hosts[0].Name = "A"
				s.pool("control", func(p *spec.Pool) { p.Host = "A" })
			},
			want: []string{"proxmox.hosts: not found in this Proxmox VE, which has the hosts a, b (given: A); correct the name; case " +
				"matters"},
		},
		"a datastore of ISO files that is not there": {
			change: func(s *testbed) { s.isoFile("nas:iso/talos.iso") },
			want: []string{"image.iso.volume: datastore not found on host a, or the credentials lack its privileges " +
				"(given: nas); name another, or grant Datastore.AllocateSpace and Datastore.Audit on it"},
		},
		"a datastore without ISO files": {
			change: func(s *testbed) { s.isoFile("local-lvm:iso/talos.iso") },
			want: []string{"image.iso.volume: does not accept iso on host a (given: local-lvm, which takes images); run " +
				"'pvesm set local-lvm --content images,iso', or name another datastore"},
		},
		"a datastore that is not active": {
			config: func(c *lab.Config) {
				c.Hosts[0].Storages = append(slices.Clone(c.Hosts[0].Storages),
					lab.Storage{Name: "nas", Type: "nfs", Content: []string{"iso"}, Inactive: true})
			},
			change: func(s *testbed) { s.downloads(); s.spec.Proxmox.Storage.Images = "nas" },
			want:   []string{"proxmox.storage.images: is not active on host a (given: nas); switch it on there, or name another"},
		},
		"a datastore of another content": {
			change: func(s *testbed) { s.downloads(); s.spec.Proxmox.Storage.Images = "local-lvm" },
			want: []string{"proxmox.storage.images: does not accept iso on host a (given: local-lvm, which takes " +
				"images); " +
				"run 'pvesm set local-lvm --content images,iso', or name another datastore"},
		},
		"a datastore without room": {
			change: func(s *testbed) { s.pool("control", func(p *spec.Pool) { p.DiskGiB = new(600) }) },
			want: []string{"warning: proxmox.storage: has 490 GiB free on host a, and the disks of new nodes may grow to 640 " +
				"GiB (given: local-lvm); " +
				"make room, or make disks smaller (diskGiB)"},
		},
		"a new control plane that is too small": {
			change: func(s *testbed) {
				s.pool("control", func(p *spec.Pool) { p.Cores, p.MemoryMiB, p.DiskGiB = new(1), new(1024), new(8) })
			},
			want: []string{
				"pools.control.cores: must be at least 2 for a new control plane: Talos requires it (given: 1); raise it",
				"pools.control.memoryMiB: must be at least 2048 for a new control plane: Talos requires it (given: " +
					"1024); raise it",
				"pools.control.diskGiB: must be at least 10 for a new control plane: Talos requires it (given: 8); raise it",
				"pools.control.diskGiB: must be at least 10, the size of the disk of template talos-v1.12.4-base: a disk cannot " +
					"shrink (given: 8); raise it",
			},
		},
		"new nodes with staged configurations": {
			change: func(s *testbed) { s.spec.Lifecycle.Apply = spec.ApplyStaged },
			want: []string{
				"lifecycle.apply: cannot configure nodes that this update creates or replaces, c-control-1, c-gpu-1 (given: " +
					"staged); set auto for this update, or leave these nodes as they are",
			},
		},
		"a teardown with staged configurations": {
			change: func(s *testbed) { s.spec.Lifecycle.Apply, s.spec.Lifecycle.Teardown = spec.ApplyStaged, true },
		},
		"no bridge": {
			change: func(s *testbed) { s.spec.Network.Bridge = "vmbr7" },
			want: []string{
				"pools.control.nics: bridge not found on host a, or the credentials lack SDN.Use on it (given: vmbr7); name " +
					"another, make it there, or grant SDN.Use on it",
				"pools.gpu.nics: bridge not found on host a, or the credentials lack SDN.Use on it (given: vmbr7); name another, " +
					"make it there, or grant SDN.Use on it",
			},
		},
		"an MTU above the bridge's": {
			config: func(c *lab.Config) { c.Hosts[0].MTU = map[string]int{"vmbr0": 9000} },
			change: func(s *testbed) { s.spec.Network.MTU = 9216 },
			want: []string{
				"pools.control.nics: must have an MTU of at most 9000, that of bridge vmbr0 of host a: a VM with a larger one does " +
					"not start (given: 9216); lower network.mtu (or nics[].mtu), or raise the MTU of the bridge there",
				"pools.gpu.nics: must have an MTU of at most 9000, that of bridge vmbr0 of host a: a VM with a larger one does not " +
					"start (given: 9216); lower network.mtu (or nics[].mtu), or raise the MTU of the bridge there",
			},
		},
		"the bridge's MTU": {
			config: func(c *lab.Config) { c.Hosts[0].MTU = map[string]int{"vmbr0": 9000} },
			change: func(s *testbed) { s.spec.Network.MTU = 9000 },
		},
		"an MTU of a bridge that states none": {
			change: func(s *testbed) { s.spec.Network.MTU = 9000; delete(s.spec.Pools, "gpu") },
			want: []string{
				"warning: pools.control.nics: must not exceed the MTU of bridge vmbr0 of host a, or the VM does " +
					"not start, and Proxmox VE does not report that MTU (given: 9000); check it on that host ('ip " +
					"link show vmbr0')",
			},
		},
		"a template with a cloud-init drive, which Talos on metal does not read": {
			config: func(c *lab.Config) { c.Templates[0].Conf["ide2"] = "local-lvm:vm-9000-cloudinit,media=cdrom" },
		},
		"a template with a cloud-init drive": {
			change: nocloud,
			config: func(c *lab.Config) { c.Templates[0].Conf["ide2"] = "local-lvm:vm-9000-cloudinit,media=cdrom" },
			want: ofTemplates("must be a template of Talos without configuration, and this one has a cloud-init " +
				"drive (ide2) (given: talos-v1.12.4-base, VMID 9000 on host a); run 'qm set 9000 --delete ide2' on that host, or " +
				"name another"),
		},
		"a template with user data": {
			change: nocloud,
			config: func(c *lab.Config) { c.Templates[0].Conf["cicustom"] = "user=local:snippets/worker.yaml" },
			want: ofTemplates("must be a template of Talos without configuration, and this one takes cloud-init " +
				"data from files (user=local:snippets/worker.yaml) (given: talos-v1.12.4-base, VMID 9000 on host a); run 'qm set " +
				"9000 --delete cicustom' on that host, or name another"),
		},
		"no template": {
			change: func(s *testbed) { s.spec.Image.Template.Control = "talos-none" },
			want: []string{"image.template.control: is not on host a, and no host has a similar one (given: " +
				"talos-none); " +
				"prepare the template, or correct the name"},
		},
		"no ISO file": {
			change: func(s *testbed) { s.isoFile("local:iso/talos.iso") },
			want: []string{"image.iso.volume: is not on host a (given: local:iso/talos.iso); upload it there, or name one " +
				"that is; case matters"},
		},
		"a VMID of a foreign VM": {
			change: func(s *testbed) { s.machine(401, false, map[string]string{"name": "mail"}) },
			want:   []string{`pools.control.vmids: 401 is taken by "mail" on host a (given: c-control-1); choose another range (the next free VMID is 402), or remove that machine`},
		},
		"an address that answers": {
			change: func(s *testbed) { s.listen(11, 50000); s.listen(12, 6443) },
			want: []string{"pools.control.addresses: N.11 is to be c-control-1, and a machine answers there already, on port " +
				"50000; " +
				"find out which machine has it, or choose another address (the next one at which no machine " +
				"answers is N.13); a node of a former cluster may still be running"},
		},
		"a virtual address that answers": {
			change: func(s *testbed) { s.listen(20, 6443) },
			want: []string{"cluster.endpoint.address: N.20 is to be the virtual address, and a machine answers there already, " +
				"on port 6443; " +
				"find out which machine has it, or choose another address (the next one at which no machine " +
				"answers is N.21); a node of a former cluster may still be running"},
		},
		"too few processors": {
			change: func(s *testbed) {
				s.spec.Proxmox.Hosts[0].Capacity.VCPU = 64
				s.pool("control", func(p *spec.Pool) { p.Cores = new(12) })
			},
			want: []string{"pools.control.cores: must be at most 8, the processors of host a: a VM with more does not start " +
				"(given: 12); lower it, or place the node elsewhere"},
		},
		"too little memory": {
			change: func(s *testbed) { s.machine(100, false, map[string]string{"memory": "30000"}) },
			want: []string{"warning: proxmox.hosts: has 32768 MiB of memory, but its guests are allocated 30000 " +
				"MiB, and new nodes 8192 MiB (given: a); " +
				"make sure that not all of it is used at once, make nodes smaller, or place them elsewhere"},
		},
		"a capacity that the host has not": {
			change: func(s *testbed) { s.spec.Proxmox.Hosts[0].Capacity.MemoryMiB = 65536 },
			want: []string{"warning: proxmox.hosts: sets a capacity of 65536 MiB for host a, which has 32768 MiB (given: a); " +
				"lower capacity.memoryMiB"},
		},
		"no GPU": {
			config: func(c *lab.Config) { c.Hosts[0].PCI = nil },
			want: []string{"pools.gpu.gpus.1.bdf: is not a PCI device of host a (given: 0000:01:00.0); run 'lspci -Dnn' on " +
				"that host, and correct it"},
		},
		"a GPU that runs elsewhere": {
			change: func(s *testbed) {
				s.machine(100, true, map[string]string{"name": "gaming", "hostpci0": "01:00,pcie=0"})
			},
			want: []string{"pools.gpu.gpus.1.bdf: is in use by gaming (VMID 100) on host a (given: 0000:01:00.0); take it " +
				"from that VM, or name another GPU"},
		},
		"a GPU that is mapped elsewhere": {
			change: func(s *testbed) {
				require.NoError(s, s.World().CreateMapping(world.Mapping{
					Kind: "pci", ID: "card",
					Map: []string{"id=10de:2204,iommugroup=1,node=a,path=0000:01:00.0,subsystem-id=10de:147d"},
				}))
				s.machine(100, false, map[string]string{"name": "gaming", "hostpci0": "mapping=card"})
			},
			want: []string{"warning: pools.gpu.gpus.1.bdf: belongs to gaming (VMID 100) on host a too, which cannot be " +
				"started any more (given: 0000:01:00.0); " +
				"take it from that VM, or name another GPU"},
		},
		"a GPU that is not alone": {
			config: func(c *lab.Config) { c.Hosts[0].PCI = append(c.Hosts[0].PCI, world.GPU("0000:02:00", 1)[:1]...) },
			want: []string{"warning: pools.gpu.gpus.1.bdf: shares IOMMU group 1 of host a with 0000:02:00.0 (GA102 [GeForce " +
				"RTX 3090]), which the host loses too (given: 0000:01:00.0); " +
				"put the card into another slot"},
		},
		"no IOMMU": {
			config: func(c *lab.Config) { c.Hosts[0].NoIOMMU = true },
			want: []string{"pools.gpu.gpus.1.bdf: cannot be passed through: the IOMMU of host a is off (given: 0000:01:00.0); " +
				"switch it on in the firmware and in the kernel's command line, and restart the host"},
		},
		"a clock that is behind": {
			config: func(c *lab.Config) { c.Hosts[0].ClockSkew = -2 * time.Hour },
			want: []string{"warning: proxmox.hosts: has a clock that is 2h0m0s behind this machine's: nodes may " +
				"reject certificates that are issued here (given: a); " +
				"correct the time of both ('chronyc tracking')"},
		},
		"privileges": {
			change: func(s *testbed) { s.without("VM.Allocate", "Mapping.Use", "Sys.Audit", "Sys.Modify") },
			want: []string{
				"proxmox: the credentials lack VM.Allocate on /vms/401, /vms/601, to make and to remove VMs; " +
					fmt.Sprintf(grant, "VM.Allocate"),
				"proxmox: the credentials lack Sys.Audit or Sys.Modify on /, to see the GPUs of hosts; " +
					fmt.Sprintf(grant, "Sys.Audit"),
				"proxmox: the credentials lack Mapping.Use on /mapping/pci/c-gpu-1, to use resource mappings of GPUs; " +
					fmt.Sprintf(grant, "Mapping.Use"),
				"warning: proxmox: the credentials lack Sys.Audit on /nodes/a, to compare cores and memory with what hosts have; " +
					fmt.Sprintf(grant, "Sys.Audit"),
			},
		},
	}
}

// TestFindings provokes each finding in the lab, which says what Proxmox VE would. Nothing is asked for but to be read.
func TestFindings(t *testing.T) {
	for name, f := range findings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var changes []func(*lab.Config)
			if f.config != nil {
				changes = append(changes, f.config)
			}

			s := newTestbed(t, changes...)
			if f.change != nil {
				f.change(s)
			}

			assert.Equal(t, f.want, s.findings())

			for _, e := range s.Journal().Entries() {
				assert.True(t, strings.HasPrefix(e.Call, "GET "), "%s", e)
			}
		})
	}
}

// TestOffline: nothing is asked; a preview goes on with what it does not know, an update does not.
func TestOffline(t *testing.T) {
	s := newTestbed(t)
	s.access.Offline = "TALOS_PROXMOX_OFFLINE is set"

	assert.Equal(t, []string{
		"proxmox.endpoint: Proxmox VE at LAB is not asked: TALOS_PROXMOX_OFFLINE is set; unset it: without Proxmox VE " +
			"there are only previews",
	}, s.findings())

	api, err := proxmoxapi.New(s.access)
	require.NoError(t, err)

	for _, preview := range []bool{true, false} {
		err := pulumi.RunErr(func(ctx *pulumi.Context) error {
			found, err := Run(ctx, plantest.New(t, s.spec), api, quietNetwork{})
			assert.Nil(t, found.Device(plan.Node{}))
			assert.False(t, found.Incomplete(plan.Node{}))
			assert.NoError(t, found.CheckPermissions(plan.Node{}, []string{"memory"}))

			return err
		}, pulumi.WithMocks("p", "s", mocks{}), func(i *pulumi.RunInfo) { i.DryRun = preview })
		assert.Equal(t, preview, err == nil, "%v", err)
	}

	assert.Empty(t, s.Journal().Entries())
}

// TestFindingsAtOnce: whatever is wrong is said in one look.
func TestFindingsAtOnce(t *testing.T) {
	all := findings()
	together := []string{
		"a capacity that the host has not", "a GPU that runs elsewhere", "a GPU that is not alone", "a clock that is behind",
		"an address that answers", "a virtual address that answers",
		"a datastore without room", "no bridge", "no template",
	}

	var (
		changes []func(*lab.Config)
		want    []string
	)

	for _, name := range together {
		if all[name].config != nil {
			changes = append(changes, all[name].config)
		}

		want = append(want, all[name].want...)
	}

	s := newTestbed(t, changes...)

	for _, name := range together {
		if all[name].change != nil {
			all[name].change(s)
		}
	}

	// A missing privilege, too.
	s.without("VM.PowerMgmt")
	want = append(want, "proxmox: the credentials lack VM.PowerMgmt on /vms/401, /vms/601, to start and to stop "+
		"VMs; "+fmt.Sprintf(grant, "VM.PowerMgmt"))

	assert.ElementsMatch(t, want, s.findings())
}
