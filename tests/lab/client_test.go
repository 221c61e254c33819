package lab_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/world"
)

// What a program asks of Proxmox VE through go-proxmox before it does anything.
func TestReadingThroughAClient(t *testing.T) {
	l, _ := start(t, func(c *lab.Config) {
		c.Hosts = append(c.Hosts, lab.Host{Name: "pve2", VCPU: 4, MemoryMiB: 8192, Storages: c.Hosts[0].Storages})
	})
	c := byToken(l)
	ctx := t.Context()

	version, err := c.Version(ctx)
	require.NoError(t, err)
	require.Equal(t, "9.2", version.Release)

	cluster, err := c.Cluster(ctx)
	require.NoError(t, err)
	require.Len(t, cluster.Nodes, 2)
	require.Equal(t, 1, cluster.Quorate)
	require.True(t, l.Network().Contains(netip.MustParseAddr(cluster.Nodes[0].IP)))

	nodes, err := c.Nodes(ctx)
	require.NoError(t, err)
	require.Equal(t, "online", nodes[1].Status)
	require.Equal(t, 4, nodes[1].MaxCPU)

	resources, err := cluster.Resources(ctx, "vm")
	require.NoError(t, err)
	require.Len(t, resources, 1)
	require.EqualValues(t, 1, resources[0].Template)
	require.Equal(t, "talos-v1.12.4-base", resources[0].Name)

	resources, err = cluster.Resources(ctx)
	require.NoError(t, err)
	require.Len(t, resources, 1+2+4+2, "a template, hosts, storages, networks")

	id, err := cluster.NextID(ctx)
	require.NoError(t, err)
	require.Equal(t, 100, id)
	free, err := cluster.CheckID(ctx, 9000)
	require.NoError(t, err)
	require.False(t, free)

	node, err := c.Node(ctx, "pve2")
	require.NoError(t, err)
	require.Equal(t, 4, node.CPUInfo.CPUs)
	require.EqualValues(t, 8192<<20, node.Memory.Total)

	storages, err := node.Storages(ctx)
	require.NoError(t, err)
	require.Len(t, storages, 2)
	storage, err := node.StorageISO(ctx)
	require.NoError(t, err)
	require.Equal(t, "local", storage.Name)
	content, err := storage.GetContent(ctx)
	require.NoError(t, err)
	require.Empty(t, content)

	networks, err := node.Networks(ctx)
	require.NoError(t, err)
	require.Equal(t, "vmbr0", networks[0].Iface)

	permissions, err := c.Permissions(ctx, &proxmox.PermissionsOptions{})
	require.NoError(t, err)
	require.True(t, bool(permissions["/"]["VM.Allocate"]))

	_, err = node.VirtualMachine(ctx, 9000)
	require.EqualError(t, err, "500 Configuration file 'nodes/pve2/qemu-server/9000.conf' does not exist")

	require.NoError(t, c.NewPool(ctx, "talos", "nodes"))
	pools, err := c.Pools(ctx)
	require.NoError(t, err)
	require.Len(t, pools, 1)
	pool, err := c.Pool(ctx, "talos")
	require.NoError(t, err)
	require.NoError(t, pool.Update(ctx, &proxmox.PoolUpdateOption{VirtualMachines: "9000"}))
	pool, err = c.Pool(ctx, "talos", "qemu")
	require.NoError(t, err)
	require.EqualValues(t, 9000, pool.Members[0].VMID)
}

func TestLoginThroughAClient(t *testing.T) {
	l, _ := start(t)

	c := client(l, proxmox.WithCredentials(
		&proxmox.Credentials{Username: l.Credentials().Username, Password: l.Credentials().Password}))
	require.NoError(t, c.NewPool(t.Context(), "p", ""))

	c = client(l, proxmox.WithCredentials(&proxmox.Credentials{Username: l.Credentials().Username, Password: "wrong"}))
	_, err := c.Version(t.Context())
	require.True(t, proxmox.IsNotAuthorized(err), err)
}

func TestAVMFromAnISO(t *testing.T) {
	l, f := start(t)
	require.NoError(t, l.World().AddFile("pve", "local", "iso", "talos.iso", 1<<20, image("iso")))

	node, err := byToken(l).Node(t.Context(), "pve")
	require.NoError(t, err)

	task, err := node.NewVirtualMachine(t.Context(), 501,
		proxmox.VirtualMachineOption{Name: "name", Value: "worker-1"},
		proxmox.VirtualMachineOption{Name: "scsi0", Value: "tank:20"},
		proxmox.VirtualMachineOption{Name: "ide2", Value: "local:iso/talos.iso,media=cdrom"},
		proxmox.VirtualMachineOption{Name: "boot", Value: "order=scsi0;ide2"},
		proxmox.VirtualMachineOption{Name: "start", Value: 1},
	)
	wait(t, task, err)
	require.Equal(t, image("iso"), f.seen()[0].Boot[0].Medium)

	vm, err := node.VirtualMachine(t.Context(), 501)
	require.NoError(t, err)
	require.True(t, vm.IsRunning())

	// The medium is taken out while the machine runs.
	task, err = vm.Config(t.Context(), proxmox.VirtualMachineOption{Name: "ide2", Value: "none,media=cdrom"})
	wait(t, task, err)
	pending, err := vm.Pending(t.Context())
	require.NoError(t, err)
	require.Contains(t, *pending, proxmox.PendingConfigItem{Key: "ide2", Value: "none,media=cdrom"})

	task, err = vm.Reboot(t.Context())
	wait(t, task, err)
	require.Eventually(t, func() bool { return len(f.seen()) == 2 }, time.Minute, time.Millisecond,
		"it starts after the task has ended")
	require.Empty(t, f.seen()[1].Boot)

	task, err = vm.Stop(t.Context())
	wait(t, task, err)
	task, err = vm.ConvertToTemplate(t.Context())
	wait(t, task, err)
}

func TestASilentAgent(t *testing.T) {
	l, f := start(t)
	f.silent = true

	node, err := byToken(l).Node(t.Context(), "pve")
	require.NoError(t, err)

	task, err := node.NewVirtualMachine(t.Context(), 501,
		proxmox.VirtualMachineOption{Name: "agent", Value: "enabled=1"},
		proxmox.VirtualMachineOption{Name: "start", Value: 1})
	wait(t, task, err)

	vm, err := node.VirtualMachine(t.Context(), 501)
	require.NoError(t, err)
	_, err = vm.AgentGetNetworkIFaces(t.Context())
	require.EqualError(t, err, "500 QEMU guest agent is not running")
	require.ErrorIs(t, vm.WaitForAgent(t.Context(), 0), proxmox.ErrTimeout)
}

func TestLabsSideBySide(t *testing.T) {
	a, _ := start(t)
	b, _ := start(t)

	require.NotEqual(t, a.Endpoint(), b.Endpoint())
	require.NotEqual(t, a.Credentials(), b.Credentials())

	c := client(b, proxmox.WithAPIToken(a.Credentials().TokenID, a.Credentials().TokenSecret))
	_, err := c.Nodes(t.Context())
	require.ErrorIs(t, err, proxmox.ErrNotAuthorized)
}

func TestALabIsGoneWhenItIsClosed(t *testing.T) {
	r, err := lab.ReserveNetwork(24)
	require.NoError(t, err)

	l, err := lab.Start(t.Context(), lab.Config{Network: r, Latencies: lab.Latencies{Clone: time.Hour}})
	require.NoError(t, err)
	require.Equal(t, r.Network(), l.Network())

	_, err = lab.Start(t.Context(), lab.Config{Network: r})
	require.ErrorContains(t, err, "belongs to another lab")
	_, err = byToken(l).Version(t.Context())
	require.NoError(t, err, "which goes on")

	require.NoError(t, l.Close())
	_, err = byToken(l).Version(t.Context())
	require.Error(t, err)
}

func TestWhatALabCannotBe(t *testing.T) {
	for _, c := range []struct {
		config lab.Config
		want   string
	}{
		{lab.Config{Hosts: []lab.Host{{}}}, "a host needs a name"},
		{lab.Config{Hosts: []lab.Host{{Name: "a"}, {Name: "a"}}}, `host "a" is there twice`},
		{lab.Config{Hosts: []lab.Host{
			{Name: "a", Storages: []lab.Storage{{Name: "s", Type: "dir"}}},
			{Name: "b", Storages: []lab.Storage{{Name: "s", Type: "lvm"}}},
		}}, `storage "s" has one type in the whole cluster`},
		{
			lab.Config{Hosts: []lab.Host{{Name: "a"}}, Templates: []lab.Template{{Name: "t", VMID: 1, Host: "b"}}},
			`the lab's template "t": hostname lookup`,
		},
		{
			lab.Config{Hosts: []lab.Host{{Name: "a"}}, Templates: []lab.Template{{Name: "t", VMID: 1, Host: "a", Storage: "s"}}},
			"storage 's' does not exist",
		},
	} {
		_, err := lab.Start(t.Context(), c.config)
		require.ErrorContains(t, err, c.want)
	}
}

func root(l *lab.Lab) world.Caller { return world.Caller{ID: l.Credentials().Username} }
