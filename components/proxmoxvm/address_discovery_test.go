package proxmoxvm

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

var agentNode = plan.Node{Name: "c-control-1", VMID: 401, MAC: "42:00:00:00:00:01"}

func discovery() *Discovery {
	return &Discovery{
		Network: netip.MustParsePrefix("10.20.0.0/16"), Except: netip.MustParseAddr("10.20.0.5"),
		Timeout: time.Second,
	}
}

// reportedLinks is what the agent of a control plane with Cilium and a virtual address reports, in an order that means
// nothing.
func reportedLinks() []proxmoxapi.Link {
	link := func(name, mac string, addresses ...string) proxmoxapi.Link {
		l := proxmoxapi.Link{Name: name, MAC: mac}
		for _, a := range addresses {
			l.Addresses = append(l.Addresses, netip.MustParseAddr(a))
		}

		return l
	}

	return []proxmoxapi.Link{
		link("lo", "00:00:00:00:00:00", "127.0.0.1", "::1"),
		link("cilium_host", "6e:00:00:00:00:01", "10.20.128.7"),
		link("eth1", "42:00:00:00:00:02", "10.20.9.9"),
		link("eth0", "42:00:00:00:00:01", "fe80::1", "10.20.0.5", "192.168.4.4", "10.20.3.4"),
	}
}

func TestChooseAddress(t *testing.T) {
	got, err := discovery().choose(agentNode, reportedLinks())
	require.NoError(t, err)
	assert.Equal(t, "10.20.3.4", got.String())

	upper := agentNode
	upper.MAC = "42:00:00:00:00:01"
	got, err = discovery().choose(upper, reportedLinks())
	require.NoError(t, err)
	assert.Equal(t, "10.20.3.4", got.String(), "case does not matter in a MAC address")

	other := agentNode
	other.MAC = "42:00:00:00:00:03"
	got, err = discovery().choose(other, reportedLinks())
	require.NoError(t, err)
	assert.False(t, got.IsValid(), "the address of another link is not the node's")

	links := reportedLinks()
	links[3].Addresses = append(links[3].Addresses, netip.MustParseAddr("10.20.3.5"))
	_, err = discovery().choose(agentNode, links)
	assert.EqualError(t, err, "c-control-1 reports several addresses inside network.cidr 10.20.0.0/16 for "+
		"42:00:00:00:00:01: [10.20.3.4 10.20.3.5]; narrow network.cidr, or set the addresses with another network.addressing")
}

func TestLinksOf(t *testing.T) {
	// The provider's lists are as long as the links it saw, and empty when it saw none.
	assert.Empty(t, linksOf(nil, nil, nil, nil))
	assert.Equal(t, []proxmoxapi.Link{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Addr{
			netip.MustParseAddr("127.0.0.1"),
			netip.MustParseAddr("::1"),
		}},
		{Name: "eth0", MAC: "42:00:00:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("10.20.3.4")}},
	}, linksOf([]string{"lo", "eth0"}, []string{"00:00:00:00:00:00", "42:00:00:00:00:01"},
		[][]string{{"127.0.0.1"}, {"10.20.3.4"}}, [][]string{{"::1"}, {}}))
}

// fakeAgent is a Proxmox VE whose agent says something new each time it is asked.
type fakeAgent struct {
	Proxmox

	says  [][]proxmoxapi.Link
	asked int
	// missing is how often there is no VM.
	missing int
	stopped bool
}

func (t *fakeAgent) Find(context.Context, int) (proxmoxapi.VM, bool, error) {
	if t.missing--; t.missing >= 0 {
		return proxmoxapi.VM{}, false, nil
	}

	return proxmoxapi.VM{ID: 401, Host: "pve", Stopped: t.stopped}, true, nil
}

func (t *fakeAgent) Links(context.Context, proxmoxapi.VM) ([]proxmoxapi.Link, error) {
	if t.asked++; t.asked > len(t.says) || t.says[t.asked-1] == nil {
		return nil, errors.New("QEMU guest agent is not running")
	}

	return t.says[t.asked-1], nil
}

func TestAskAgent(t *testing.T) {
	quiet := func(string) {}

	silent := "c-control-1 (VMID 401, 42:00:00:00:00:01) reports no address inside network.cidr 10.20.0.0/16. The usual " +
		"causes: the guest agent is not in the " +
		"image that the node booted (extension qemu-guest-agent); DHCP gave it no address (bridge, VLAN, DHCP server); or " +
		"the address lies in another " +
		"network. lifecycle.agentTimeout (1s) bounds the wait"

	t.Run("silent to the provider, asked once", func(t *testing.T) {
		d, p := discovery(), &fakeAgent{}
		d.Proxmox = p
		_, err := d.ask(t.Context(), agentNode, false, quiet)
		assert.EqualError(t, err, silent)
		assert.Equal(t, 1, p.asked)
	})

	t.Run("answers by now", func(t *testing.T) {
		d := discovery()
		d.Proxmox = &fakeAgent{says: [][]proxmoxapi.Link{reportedLinks()}}
		got, err := d.ask(t.Context(), agentNode, false, quiet)
		require.NoError(t, err)
		assert.Equal(t, "10.20.3.4", got.String())
	})

	t.Run("has a lease later", func(t *testing.T) {
		d := discovery()
		d.Timeout = time.Minute
		d.Proxmox = &fakeAgent{says: [][]proxmoxapi.Link{reportedLinks()[:1], reportedLinks()}}
		got, err := d.ask(t.Context(), agentNode, true, quiet)
		require.NoError(t, err)
		assert.Equal(t, "10.20.3.4", got.String())
	})

	gone := "c-control-1: VM 401 does not exist on Proxmox VE, but it is in the state: it was deleted by other means, or " +
		"the answer to its deletion was lost. Run the same command again with --refresh"

	t.Run("there is no VM", func(t *testing.T) {
		d := discovery()
		d.Timeout = time.Hour
		d.Proxmox = &fakeAgent{missing: 2}
		_, err := d.ask(t.Context(), agentNode, true, quiet)
		assert.EqualError(t, err, gone)
	})

	t.Run("there is no VM, asked once", func(t *testing.T) {
		d := discovery()
		d.Proxmox = &fakeAgent{missing: 1}
		_, err := d.ask(t.Context(), agentNode, false, quiet)
		assert.EqualError(t, err, gone)
	})

	t.Run("the VM is overlooked once", func(t *testing.T) {
		d := discovery()
		d.Timeout = time.Minute
		d.Proxmox = &fakeAgent{missing: 1, says: [][]proxmoxapi.Link{reportedLinks()}}
		got, err := d.ask(t.Context(), agentNode, true, quiet)
		require.NoError(t, err)
		assert.Equal(t, "10.20.3.4", got.String())
	})

	t.Run("off, and the cluster is to be destroyed", func(t *testing.T) {
		d, p := discovery(), &fakeAgent{stopped: true}
		d.Timeout, d.Teardown, d.Proxmox = time.Hour, true, p
		got, err := d.ask(t.Context(), agentNode, true, quiet)
		require.NoError(t, err)
		assert.False(t, got.IsValid())
		assert.Zero(t, p.asked)
	})

	t.Run("off, and the cluster stays", func(t *testing.T) {
		d := discovery()
		d.Proxmox = &fakeAgent{stopped: true}
		_, err := d.ask(t.Context(), agentNode, false, quiet)
		assert.EqualError(t, err, silent)
	})

	t.Run("never has one", func(t *testing.T) {
		d := discovery()
		d.Timeout = time.Millisecond
		d.Proxmox = &fakeAgent{says: [][]proxmoxapi.Link{reportedLinks()[:1], reportedLinks()[:1]}}
		_, err := d.ask(t.Context(), agentNode, true, quiet)
		assert.ErrorContains(t, err, "The usual causes")
	})
}
