package vms

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// TestFirstBoot: settings that only new VMs get are not changed in silence; a pool is warned of once.
func TestFirstBoot(t *testing.T) {
	const (
		gateway = "network.gateway: applies to new nodes only; these of pool w were made with \"10.0.0.254\": c-w-1, c-w-2 " +
			"(given: 10.0.0.1); "
		servers = "network.nameservers: applies to new nodes only; these of pool w were made with \"1.1.1.1, 8.8.8.8\": " +
			"c-w-1, c-w-2 (given: 10.0.0.53); "
		tpm = "pools.w.tpm: applies to new nodes only; these of pool w were made with \"false\": c-w-1, c-w-2 (given: true); "

		patches = "set it for running nodes in patches, or replace them with lifecycle.replace"
		byHand  = "change the nodes by hand, or replace them with lifecycle.replace"
	)

	drive := func(gateway, servers string) map[string]string {
		return map[string]string{"ipconfig0": "gw=" + gateway + ",ip=10.0.0.21/24", "nameserver": servers, "cores": "0"}
	}

	for name, c := range map[string]struct {
		current map[string]string
		change  func(*plan.Plan)
		node    func(*plan.Node)
		want    []string
	}{
		"as they were made": {current: drive("10.0.0.1", "10.0.0.53")},
		"others": {
			current: drive("10.0.0.254", "1.1.1.1 8.8.8.8"), want: []string{gateway + patches, servers + patches},
		},
		"K3s": {
			current: drive("10.0.0.254", "10.0.0.53"), change: func(p *plan.Plan) { p.Distribution = spec.DistributionK3s },
			want: []string{gateway + byHand},
		},
		"K3s, with addresses that the plan sets": {
			current: drive("10.0.0.254", "10.0.0.53"), change: func(p *plan.Plan) { p.Distribution = spec.DistributionK3s },
			node: func(n *plan.Node) { n.Static = true }, want: []string{gateway + byHand},
		},
		"external": {
			current: drive("10.0.0.254", "10.0.0.53"), change: func(p *plan.Plan) { p.Bootstrap = spec.BootstrapExternal },
			want: []string{gateway + "change the nodes by hand"},
		},
		"by DHCP":            {current: map[string]string{"ipconfig0": "ip=dhcp"}},
		"without a drive":    {current: drive("10.0.0.254", "1.1.1.1"), node: func(n *plan.Node) { n.CloudInit = "" }},
		"in the machine":     {current: drive("10.0.0.254", "1.1.1.1"), node: func(n *plan.Node) { n.Static = true }},
		"a TPM":              {current: drive("10.0.0.1", "10.0.0.53"), node: func(n *plan.Node) { n.TPM = true }, want: []string{tpm + "replace them with lifecycle.replace"}},
		"that of a template": {current: map[string]string{"tpmstate0": "tank:x"}, node: func(n *plan.Node) { n.Template = "t" }},
		"made again": {
			current: drive("10.0.0.254", "1.1.1.1"), change: func(p *plan.Plan) { p.Replace = []string{"c-w-1", "c-w-2"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{
				Distribution: spec.DistributionTalos, Addressing: spec.AddressingStatic, Gateway: netip.MustParseAddr("10.0.0.1"),
				Nameservers: []netip.Addr{netip.MustParseAddr("10.0.0.53")}, Pools: []plan.PlannedPool{{Name: "w"}},
			}
			s := New(checks.New(p, &settledVMs{current: c.current}))

			for i, name := range []string{"c-w-1", "c-w-2"} {
				n := plan.Node{Name: name, Pool: "w", VMID: 501 + i, CPUUnits: proxmoxapi.DefaultCPUUnits, CloudInit: "ide2"}
				if c.node != nil {
					c.node(&n)
				}

				p.Pools[0].Nodes = append(p.Pools[0].Nodes, n)
				s.VMs = append(s.VMs, proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: "pve"})
			}

			if c.change != nil {
				c.change(p)
			}

			require.NoError(t, s.CheckStates(t.Context()))

			var said []string
			for _, w := range s.Warnings {
				said = append(said, w.String())
			}

			assert.Equal(t, c.want, said)
		})
	}
}
