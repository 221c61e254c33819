package vms

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// reportingAgents is a Proxmox VE whose VMs have guest agents, by VMID; others do not answer.
type reportingAgents struct {
	preflighttest.ManyHosts

	reported map[int]string
}

func (r *reportingAgents) Links(_ context.Context, v proxmoxapi.VM) ([]proxmoxapi.Link, error) {
	address, answers := r.reported[v.ID]
	if !answers {
		return nil, errors.New("QEMU guest agent is not running")
	}

	for _, n := range reservedPlan().Nodes() {
		if n.VMID == v.ID {
			return []proxmoxapi.Link{
				{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
				{Name: "eth0", MAC: n.MAC, Addresses: []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr(address)}},
			}, nil
		}
	}

	return nil, nil
}

// reservedPlan has three control planes with the guest agent.
func reservedPlan() *plan.Plan {
	s := plantest.Spec()
	s.Image.Schematic = &spec.Schematic{Extensions: []string{plan.GuestAgent}}
	s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}

	p, err := planner.Plan(s)
	if err != nil {
		panic(err)
	}

	return p
}

// TestReportedAddresses: a guest agent that reports another address than the planned one is a warning. One that does
// not answer, or of a VM that is off, is none.
func TestReportedAddresses(t *testing.T) {
	p := reservedPlan()

	var vms []proxmoxapi.VM
	for i, n := range p.Nodes() {
		vms = append(vms, proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: n.Host, Stopped: i == 2})
	}

	warnings := func(reported map[int]string) []string {
		c := New(checks.New(p, &reportingAgents{ManyHosts: preflighttest.ManyHosts{Listed: vms}, reported: reported}))
		require.NoError(t, c.Read(t.Context()))
		require.NoError(t, c.CheckReportedAddresses(t.Context()))

		var texts []string
		for _, w := range c.Warnings {
			texts = append(texts, w.String())
		}

		return texts
	}

	assert.Empty(t, warnings(map[int]string{401: "10.0.0.11", 402: "10.0.0.12"}))
	assert.Empty(t, warnings(nil))
	assert.Equal(t, []string{
		"pools.control.addresses: c-control-2 is planned with another address than its guest agent reports: 10.9.0.57 " +
			"(given: 10.0.0.12); correct what gives " + p.Nodes()[1].MAC + " its address, such as a reservation of the DHCP " +
			"server, and restart the node; or set the reported address",
	}, warnings(map[int]string{401: "10.0.0.11", 402: "10.9.0.57", 403: "10.9.0.58"}))
}
