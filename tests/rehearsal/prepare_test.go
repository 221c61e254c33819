package rehearsal

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/world"
)

// planned is the plan of an example.
func planned(t *testing.T, stack string) (*plan.Plan, config.Config) {
	t.Helper()

	s, err := Find("../..", stack)
	require.NoError(t, err)
	config, err := s.parse()
	require.NoError(t, err)
	p, err := config.Plan()
	require.NoError(t, err)

	return p, config
}

func same(a netip.Addr) netip.Addr { return a }

// TestWhatAStackExpects holds what the lab has for the examples: nothing that the plan does not need, and all that it
// does.
func TestWhatAStackExpects(t *testing.T) {
	t.Parallel()

	p, config := planned(t, "enterprise")
	c := labOf(p, []string{"local-lvm"})
	require.Equal(t, []lab.Storage{
		{Name: "local", Type: "dir", SizeGiB: 8192, Content: []string{"iso", "vztmpl"}},
		{Name: "local-lvm", Type: "zfspool", SizeGiB: 8192, Shared: true, Content: []string{"images"}},
	}, c.Hosts[2].Storages)
	require.Equal(t, []lab.File{{Storage: "local", Name: "talos-1.9.0.iso", Asset: lab.Asset{
		Schematic: "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515", Version: "v1.9.0", Platform: "metal",
		ISO: true,
	}}}, c.Files, "one for all hosts, with the guest agent")
	require.Empty(t, c.Templates)

	dhcp(&c, p, config, []string{"enterprise-worker-1"}, same)
	require.Equal(t, lab.Range{From: netip.MustParseAddr("10.20.128.0"), To: netip.MustParseAddr("10.20.255.254")}, c.DHCP)
	require.Len(t, c.Reservations, 1, "that the silent one gets nothing")

	p, config = planned(t, "atlas")
	c = labOf(p, nil)
	require.Equal(t, []lab.Storage{{
		Name: "local", Type: "dir", SizeGiB: 8192,
		Content: []string{"images", "iso", "vztmpl"},
	}}, c.Hosts[0].Storages)
	require.Empty(t, c.Files)

	dhcp(&c, p, config, nil, same)
	require.Equal(t, lab.Range{}, c.DHCP, "static addresses need no DHCP")
	require.Empty(t, c.Reservations)

	p, config = planned(t, "k3s-dev-vms")
	c = labOf(p, nil)
	require.Len(t, c.Templates, 1)
	require.Equal(t, map[string]string{"machine": "q35"}, c.Templates[0].Conf, "which is what the GPU nodes need")
	require.Equal(t, append(world.GPU("0000:01:00", 10), world.GPU("0000:02:00", 12)...), c.Hosts[0].PCI)

	dhcp(&c, p, config, nil, same)
	require.Equal(t, lab.Range{}, c.DHCP)
	require.Contains(t, c.Reservations, p.Nodes()[0].MAC)
}

// TestWhatShapesExpect holds that what nodes are made with in addition to their hosts exists.
func TestWhatShapesExpect(t *testing.T) {
	t.Parallel()

	p, _ := planned(t, "k3s-dev-vms")
	for _, pool := range p.Pools {
		for i := range pool.Nodes {
			pool.Nodes[i].ResourcePool, pool.Nodes[i].HAGroup, pool.Nodes[i].NICs[0].MTU = "dev", "racks", 9000
		}
	}

	c := labOf(p, nil)
	require.Equal(t, []string{"dev"}, c.Pools)
	require.Equal(t, "racks", c.HAGroups[0].Name)
	require.Len(t, c.HAGroups, 1)
	require.Len(t, c.HAGroups[0].Nodes, len(p.Hosts))
	require.Equal(t, map[string]int{p.Nodes()[0].NICs[0].Bridge: 9000}, c.Hosts[0].MTU)
}

// TestRest holds that leases are in the network and unused.
func TestRest(t *testing.T) {
	t.Parallel()

	for network, want := range map[string][2]string{
		"192.168.10.0/24": {"192.168.10.128", "192.168.10.254"}, "10.0.0.0/28": {"10.0.0.8", "10.0.0.14"},
		"10.0.128.0/17": {"10.0.192.0", "10.0.255.254"},
	} {
		r := rest(&plan.Plan{Network: netip.MustParsePrefix(network)}, same)
		require.Equal(t, want, [2]string{r.From.String(), r.To.String()})
	}

	r := rest(&plan.Plan{Network: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.130")}, same)
	require.Equal(t, "10.0.0.131", r.From.String())
}
