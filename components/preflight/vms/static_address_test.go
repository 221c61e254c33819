package vms

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// addressedVMs have this on their cloud-init drive, and report this address.
type addressedVMs struct {
	settledVMs

	reported string
}

func (a *addressedVMs) Links(context.Context, proxmoxapi.VM) ([]proxmoxapi.Link, error) {
	if a.reported == "" {
		return nil, errors.New("QEMU guest agent is not running")
	}

	return []proxmoxapi.Link{{Name: "eth0", Addresses: []netip.Addr{netip.MustParseAddr(a.reported)}}}, nil
}

// TestStaticAddresses: a node that exists keeps the address that its cloud-init drive gives it.
func TestStaticAddresses(t *testing.T) {
	const (
		rule = "pools.w.addresses: applies to new nodes only, and c-w-1 was made with 10.0.0.21 (given: 10.0.0.22); "
		back = "put the former address back (an address belongs to the place of a node in its pool), or name the node in " +
			"lifecycle.replace"
		talos = "; if the node has the new address already, run 'qm set 501 --ipconfig0 ip=10.0.0.22/24,gw=10.0.0.1' on " +
			"host pve"
		k3s = spec.DistributionK3s
	)

	for name, c := range map[string]struct {
		drive, reported string
		distribution    spec.Distribution
		node            func(*plan.Node)
		change          func(*plan.Plan)
		problem, warn   string
	}{
		"as it was made": {drive: "ip=10.0.0.22/24,gw=10.0.0.1"},
		"another":        {drive: "ip=10.0.0.21/24,gw=10.0.0.1", problem: rule + back + talos},
		"another, with agent": {
			drive: "ip=10.0.0.21/24,gw=10.0.0.1", reported: "10.0.0.21", node: func(n *plan.Node) { n.Agent = true },
			problem: rule + back,
		},
		"another, agent silent": {
			drive: "ip=10.0.0.21/24,gw=10.0.0.1", node: func(n *plan.Node) { n.Agent = true },
			warn: strings.Replace(rule, "10.0.0.21 (", "10.0.0.21, and its guest agent does not say whether that was changed "+
				"by hand (", 1) + back,
		},
		"of K3s": {drive: "ip=10.0.0.21/24,gw=10.0.0.1", distribution: k3s, problem: rule + back},
		"changed by hand": {
			drive: "ip=10.0.0.21/24,gw=10.0.0.1", reported: "10.0.0.22", node: func(n *plan.Node) { n.Agent = true },
		},
		"another network, which Talos is told": {drive: "ip=10.0.0.22/16,gw=10.0.0.1"},
		"another network": {
			drive: "ip=10.0.0.22/16,gw=10.0.0.1", distribution: k3s,
			warn: "network.cidr: applies to new nodes only; these of pool w were made with \"10.0.0.0/16\": c-w-1 (given: " +
				"10.0.0.0/24); change the nodes by hand, or replace them with lifecycle.replace",
		},
		"both families":   {drive: "ip6=fd00::1/64,gw6=fd00::2,ip=10.0.0.22/24,gw=10.0.0.1"},
		"by DHCP":         {drive: "ip=dhcp"},
		"no drive":        {},
		"not planned":     {drive: "ip=10.0.0.21/24,gw=10.0.0.1", node: func(n *plan.Node) { n.Address = netip.Addr{} }},
		"made again":      {drive: "ip=10.0.0.21/24,gw=10.0.0.1", change: func(p *plan.Plan) { p.Replace = []string{"c-w-1"} }},
		"destroyed":       {drive: "ip=10.0.0.21/24,gw=10.0.0.1", change: func(p *plan.Plan) { p.Teardown = true }},
		"others hand out": {drive: "ip=10.0.0.21/24,gw=10.0.0.1", change: func(p *plan.Plan) { p.Addressing = spec.AddressingReserved }},
		"external": {
			drive: "ip=10.0.0.21/24,gw=10.0.0.1", change: func(p *plan.Plan) { p.Bootstrap = spec.BootstrapExternal },
			warn: rule + "change the node by hand, or put the former address back",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := plan.Node{
				Name: "c-w-1", Pool: "w", VMID: 501, CPUUnits: proxmoxapi.DefaultCPUUnits, CloudInit: "ide2",
				Address: netip.MustParseAddr("10.0.0.22"), Static: true,
			}
			if c.node != nil {
				c.node(&n)
			}

			p := &plan.Plan{
				Distribution: spec.DistributionTalos, Addressing: spec.AddressingStatic, Gateway: netip.MustParseAddr("10.0.0.1"),
				Network: netip.MustParsePrefix("10.0.0.0/24"), Pools: []plan.PlannedPool{{Name: "w", Nodes: []plan.Node{n}}},
			}
			if c.distribution != "" {
				p.Distribution = c.distribution
			}

			if c.change != nil {
				c.change(p)
			}

			current := map[string]string{"cores": "0"}
			if c.drive != "" {
				current["ipconfig0"] = c.drive
			}

			s := New(checks.New(p, &addressedVMs{settledVMs{current: current}, c.reported}))
			s.VMs = []proxmoxapi.VM{{ID: 501, Name: "c-w-1", Host: "pve"}}
			require.NoError(t, s.CheckStates(t.Context()))

			var refused, warned string
			for _, problem := range s.Problems {
				refused += problem.String()
			}

			for _, w := range s.Warnings {
				warned += w.String()
			}

			assert.Equal(t, c.problem, refused)
			assert.Equal(t, c.warn, warned)
		})
	}
}
