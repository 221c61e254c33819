package planner

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// TestOddConfigurations: what works, and is mostly not meant, is said.
func TestOddConfigurations(t *testing.T) {
	t.Parallel()

	v6 := func(s *draft, nameservers ...string) {
		s.Network = spec.Network{CIDR: "2001:db8::/64", Gateway: "fe80::1", Nameservers: nameservers}
		s.Image.Platform = spec.PlatformNoCloud
		*s = s.with("control", spec.Pool{Role: spec.RoleControlPlane, Count: new(1), Addresses: "2001:db8::11-2001:db8::13"})
	}

	for name, test := range map[string]struct {
		change func(*draft)
		want   []string
	}{
		"usual": {change: func(s *draft) { s.Proxmox.Endpoint = "https://pve.lan:8006" }},
		"endpoint without a port": {
			change: func(s *draft) { s.Proxmox.Endpoint = "https://pve.lan/" },
			want: []string{"proxmox.endpoint: has no port, which means 443: Proxmox VE itself listens on 8006 (given: " +
				"https://pve.lan/); write https://pve.lan:8006, or :443 if a proxy listens there"},
		},
		"endpoint of a proxy": {change: func(s *draft) { s.Proxmox.Endpoint = "https://pve.lan:443" }},
		"small control plane": {
			change: func(s *draft) { s.Defaults.MemoryMiB, s.Defaults.DiskGiB = new(1024), new(8) },
			want: []string{
				"pools.control.memoryMiB: is below the minimum that Talos requires for a control plane, 2048 " +
					"(given: 1024); raise it",
				"pools.control.diskGiB: is below the minimum that Talos requires for a control plane, 10 (given: " +
					"8); raise it",
			},
		},
		"IPv6 with IPv4 resolvers": {
			change: func(s *draft) { v6(s) },
			want: []string{"network.nameservers: are of another IP version than network.cidr 2001:db8::/64: the nodes reach " +
				"them only if they have addresses of both (given: 1.1.1.1, 8.8.8.8); set DNS servers of the network's version, " +
				"such as 2606:4700:4700::1111 with IPv6"},
		},
		"filtered interface without a firewall": {
			change: func(s *draft) { s.Defaults.NICs = []spec.NIC{{Firewall: new(true)}} },
			want: []string{"defaults.nics[0].firewall: filters nothing by itself: the program only switches on the firewall " +
				"of the VM with firewall.enabled (given: true); set firewall.enabled, or leave it out unless the VM has rules of " +
				"its own"},
		},
		"filtered interface with a firewall": {
			change: func(s *draft) {
				s.Firewall.Enabled, s.Defaults.NICs = new(true), []spec.NIC{{Firewall: new(true)}}
			},
		},
		"solid state on virtio": {
			change: func(s *draft) {
				s.Defaults.ExtraDisks = []spec.ExtraDisk{
					{SizeGiB: 10, DiskOptions: spec.DiskOptions{Interface: new("virtio1"), SSD: new(true)}},
					{SizeGiB: 10, DiskOptions: spec.DiskOptions{Interface: new("scsi2"), SSD: new(true)}},
				}
			},
			want: []string{"pools.control.extraDisks[0].ssd: has no effect on a virtio disk (given: true); choose an " +
				"interface on scsi or sata, or leave it out"},
		},
		"IPv6 with both": {change: func(s *draft) { v6(s, "1.1.1.1", "2606:4700:4700::1111") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().scheduling()
			test.change(&s)

			assert.Equal(t, test.want, warningsOf(placed(t, s)))
		})
	}
}

// TestLinkLocalGatewayIsForIPv6: IPv4 has no such routers.
func TestLinkLocalGatewayIsForIPv6(t *testing.T) {
	t.Parallel()

	s := small()
	s.Network.Gateway = "169.254.1.1"

	_, err := Plan(spec.Spec(s))
	require.ErrorContains(t, err, "network.gateway: must lie inside network.cidr 10.0.0.0/8 (given: 169.254.1.1)")
}
