package preflight

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// oneRoute is a network in which this machine has an address, and no name has one.
type oneRoute struct {
	quietNetwork

	own   string
	asked *[]string
}

func (o oneRoute) Resolves(_ context.Context, host string) bool {
	*o.asked = append(*o.asked, host)

	return false
}

func (o oneRoute) Source(context.Context, netip.Addr) netip.Addr {
	a, _ := netip.ParseAddr(o.own)

	return a
}

// TestEndpointName: a name of the Kubernetes API that has no address is warned of while there is no control plane.
func TestEndpointName(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		mode   spec.EndpointMode
		there  bool
		warned bool
	}{
		"no address":          {mode: spec.EndpointDNS, warned: true},
		"control plane there": {mode: spec.EndpointDNS, there: true},
		"an address":          {mode: spec.EndpointVIP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var asked []string

			s := newChecker(&plan.Plan{
				EndpointMode: c.mode, Endpoint: "https://api.example.com:6443",
				Pools: []plan.PlannedPool{{
					Name: "control", Role: spec.RoleControlPlane,
					Nodes: []plan.Node{{VMID: 401, Role: spec.RoleControlPlane}},
				}},
			}, nil, oneRoute{asked: &asked})
			s.Absent[401] = !c.there
			require.NoError(t, s.checkEndpointName(t.Context()))

			if !c.warned {
				assert.Empty(t, s.Warnings)
				assert.Empty(t, asked)

				return
			}

			assert.Equal(t, []string{"api.example.com"}, asked)
			assert.Equal(t, spec.Problems{{
				Path: "cluster.endpoint.host", Value: "api.example.com",
				Rule:   "does not resolve on this machine, and nodes and the kubeconfig reach the Kubernetes API by it",
				Remedy: "add a DNS record that names the load balancer, or each control plane",
			}}, s.Warnings)
		})
	}
}

// TestOwnAccess: firewalls of new nodes that shut this machine out are warned of, once.
func TestOwnAccess(t *testing.T) {
	t.Parallel()

	shutOut := func(own string) spec.Problems {
		return spec.Problems{{
			Path: "firewall.apiFrom", Value: own,
			Rule:   "does not include this machine: the firewalls of the nodes would let it reach neither their APIs nor SSH",
			Remedy: "add its address or network, unless a router translates it to an address that is included",
		}}
	}
	open := func(service, from string) []plan.Ingress {
		return []plan.Ingress{
			{Name: "kubelet", From: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}},
			{Name: service, From: []netip.Prefix{netip.MustParsePrefix(from)}},
		}
	}

	for name, c := range map[string]struct {
		own, address string
		ingress      []plan.Ingress
		off, there   bool
		want         spec.Problems
	}{
		"within":           {own: "10.0.0.200", ingress: open("apid", "10.0.0.0/24")},
		"outside":          {own: "10.1.0.5", ingress: open("apid", "10.0.0.0/24"), want: shutOut("10.1.0.5")},
		"outside, of K3s":  {own: "10.1.0.5", ingress: open("ssh", "10.0.0.0/24"), want: shutOut("10.1.0.5")},
		"without firewall": {own: "10.1.0.5", ingress: open("apid", "10.0.0.0/24"), off: true},
		"nodes are there":  {own: "10.1.0.5", ingress: open("apid", "10.0.0.0/24"), there: true},
		"no route":         {ingress: open("apid", "10.0.0.0/24")},
		"this very machine": {
			own: "127.0.0.1", ingress: open("apid", "10.0.0.0/24"),
		},
		"nodes on this machine": {own: "10.1.0.5", address: "127.0.0.11", ingress: open("apid", "10.0.0.0/24")},
		"nothing is said of it": {own: "10.1.0.5", ingress: open("icmp", "10.0.0.0/24")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			address := netip.MustParseAddr("10.0.0.11")
			if c.address != "" {
				address = netip.MustParseAddr(c.address)
			}

			s := newChecker(&plan.Plan{Firewall: !c.off, Pools: []plan.PlannedPool{{
				Name: "w", Ingress: c.ingress,
				Nodes: []plan.Node{{Pool: "w", VMID: 401, Address: address}, {Pool: "w", VMID: 402, Address: address}},
			}}}, nil, oneRoute{own: c.own})
			s.Absent[401], s.Absent[402] = !c.there, !c.there
			require.NoError(t, s.checkOwnAccess(t.Context()))

			assert.Equal(t, c.want, s.Warnings.Unique())
		})
	}
}

// TestSource: the address of this machine is known without a packet.
func TestSource(t *testing.T) {
	t.Parallel()

	assert.Equal(t, "127.0.0.1", Dialer{}.Source(t.Context(), netip.MustParseAddr("127.0.0.1")).String())
	assert.True(t, Dialer{}.Resolves(t.Context(), "127.0.0.1"))
}
