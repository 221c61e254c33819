package preflight

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

func TestFindTemplates(t *testing.T) {
	template := proxmoxapi.VM{ID: 9000, Name: "talos-v1.12.4-base", Host: "pve", Template: true}
	both := map[string]int{"c-control-1": 9000, "c-control-2": 9000}

	for name, c := range map[string]struct {
		shelf   preflighttest.FixedVMs
		want    map[string]int
		problem string
	}{
		"found by name": {shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}, Interface: "scsi0", SizeGiB: 10}, want: both},
		"nothing like it": {
			shelf: preflighttest.FixedVMs{},
			problem: `image.template.control: is not on host pve, and no host has a similar one (given: talos-v1.12.4-base); ` +
				`prepare the template, or correct the name`,
		},
		"other case": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{{ID: 9000, Name: "Talos-v1.12.4-base", Host: "pve", Template: true}}},
			problem: `image.template.control: is not on host pve; there is "Talos-v1.12.4-base" (VMID 9000) on host pve (given: talos-v1.12.4-base); ` +
				`correct the name, whose case matters, or make the template on the node's host`,
		},
		"other host": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{{ID: 9000, Name: "talos-v1.12.4-base", Host: "pve2", Template: true}}},
			problem: `image.template.control: is not on host pve; there is "talos-v1.12.4-base" (VMID 9000) on host pve2 (given: talos-v1.12.4-base); ` +
				`correct the name, whose case matters, or make the template on the node's host`,
		},
		"never finalised": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{{ID: 9000, Name: "talos-v1.12.4-base", Host: "pve"}}},
			problem: `image.template.control: is a VM on host pve (VMID 9000), not a template: it was never finalised (given: talos-v1.12.4-base); ` +
				`run 'qm template 9000' on that host`,
		},
		"two of one name": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template, {
				ID: 9001, Name: "talos-v1.12.4-base", Host: "pve",
				Template: true,
			}}},
			problem: `image.template.control: matches 2 machines on host pve (given: talos-v1.12.4-base); give the VMID instead`,
		},
		"disk elsewhere": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}, Interface: "virtio0", SizeGiB: 10},
			problem: `pools.control.disk.interface: must be where template talos-v1.12.4-base (VMID 9000) has its disk (given: scsi0); ` +
				`it has virtio0`,
		},
		"no disk": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}},
			problem: `pools.control.disk.interface: must be where template talos-v1.12.4-base (VMID 9000) has its disk (given: scsi0); ` +
				`it has no disk`,
		},
		"disk too large": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template}, Interface: "scsi0", SizeGiB: 64},
			problem: `pools.control.diskGiB: must be at least 64, the size of the disk of template talos-v1.12.4-base: a disk cannot shrink (given: 40); ` +
				`raise it`,
		},
		"VMID of a stranger": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{template, {ID: 402, Name: "mail", Host: "pve3"}}, Interface: "scsi0", SizeGiB: 10},
			problem: `pools.control.vmids: 402 is taken by "mail" on host pve3 (given: c-control-2); ` +
				`choose another range (the next free VMID is 403), or remove that machine`,
		},
		"VMID of a container": {
			shelf: preflighttest.FixedVMs{
				Listed:    []proxmoxapi.VM{template, {ID: 402, Name: "c-control-2", Host: "pve3", Container: true}},
				Interface: "scsi0", SizeGiB: 10,
			},
			problem: `pools.control.vmids: 402 is taken by "c-control-2" on host pve3 (given: c-control-2); ` +
				`choose another range (the next free VMID is 403), or remove that machine`,
		},
		"node under another name": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{
				template,
				{ID: 402, Name: "old-2", Host: "pve", Tags: []string{"c", "controlplane", "talos"}},
			}, Interface: "scsi0", SizeGiB: 10},
			problem: `pools.control.names: VMID 402 is "old-2", a node of this cluster: a node keeps its name (given: c-control-2); ` +
				`if the VM was renamed, rename it back: run 'qm set 402 --name c-control-2' on host pve; if the configuration was changed, ` +
				`give the pool its former name, or its names the former pattern: the node must be called "old-2"`,
		},
		"template gone, nodes there": {
			shelf: preflighttest.FixedVMs{Listed: []proxmoxapi.VM{
				{ID: 401, Name: "c-control-1", Host: "pve"},
				{ID: 402, Name: "c-control-2", Host: "pve9"},
			}},
			want: map[string]int{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := check(t, plantest.Template(), c.shelf)

			if c.problem == "" {
				require.NoError(t, err)
				assert.Equal(t, c.want, got.facts.Templates)

				return
			}

			require.Error(t, err)
			assert.Equal(t, "the configuration has 1 problem:\n  - "+c.problem, err.Error())
		})
	}
}

func TestFindTemplatesByVMID(t *testing.T) {
	p := plantest.Template()
	for i := range p.Pools[0].Nodes {
		p.Pools[0].Nodes[i].Template = "9000"
	}

	got, err := check(t, p, preflighttest.FixedVMs{
		Listed:    []proxmoxapi.VM{{ID: 9000, Name: "whatever", Host: "pve", Template: true}},
		Interface: "scsi0",
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"c-control-1": 9000, "c-control-2": 9000}, got.facts.Templates)
}

func TestFindTemplatesWithoutAnswer(t *testing.T) {
	_, err := check(t, plantest.Template(), preflighttest.FixedVMs{Err: proxmoxapi.ErrUnreachable})
	assert.True(t, errors.Is(err, proxmoxapi.ErrUnreachable))
}

// ruledTemplate has firewall rules.
type ruledTemplate struct {
	preflighttest.FixedVMs

	rules []proxmox.FirewallRule
}

func (r ruledTemplate) FirewallRules(context.Context, proxmoxapi.VM) ([]proxmox.FirewallRule, error) {
	return r.rules, nil
}

// FirewallOn: the datacenter's is.
func (ruledTemplate) FirewallOn(context.Context) (bool, error) { return true, nil }

// TestRulesOfTemplates: a clone has the firewall rules of its template, which is refused before anything is made of it,
// where nodes are to have rules. Nodes that are there need no template.
func TestRulesOfTemplates(t *testing.T) {
	template := proxmoxapi.VM{ID: 9000, Name: "talos-v1.12.4-base", Host: "pve", Template: true}
	ingress := []plan.Ingress{{
		Name: "apid", Protocol: spec.ProtocolTCP, From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
	}}
	rules := []proxmox.FirewallRule{
		{Type: "in", Action: "ACCEPT", Proto: "tcp", Dport: "22"},
		{Type: "in", Action: "ACCEPT", Proto: "tcp", Dport: "50000", Comment: "apid"},
	}

	for name, c := range map[string]struct {
		ingress []plan.Ingress
		rules   []proxmox.FirewallRule
		there   []proxmoxapi.VM
		want    string
	}{
		"no rules":                {ingress: ingress},
		"nodes without firewalls": {rules: rules},
		"nodes that are there": {ingress: ingress, rules: rules, there: []proxmoxapi.VM{
			{ID: 401, Name: "c-control-1", Host: "pve"}, {ID: 402, Name: "c-control-2", Host: "pve"},
		}},
		"rules": {
			ingress: ingress, rules: rules,
			want: "the configuration has 1 problem:\n  - image.template.control: must be a template without firewall rules, " +
				"and this one has 2, the first one: in ACCEPT tcp 22; a clone would have them, too (given: " +
				"talos-v1.12.4-base, VMID 9000 on host pve); delete them from the template, and open ports of nodes with " +
				"firewall.open; or name another template",
		},
		"rules of a node of this program": {
			ingress: ingress, rules: rules[1:],
			want: "the configuration has 1 problem:\n  - image.template.control: must be a template without firewall rules, " +
				`and this one has 1, the first one: in ACCEPT tcp 50000 "apid"; a clone would have them, too (given: ` +
				"talos-v1.12.4-base, VMID 9000 on host pve); delete them from the template, and open ports of nodes with " +
				"firewall.open; or name another template",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.Template()
			p.Pools[0].Ingress = c.ingress

			_, err := check(t, p, ruledTemplate{
				preflighttest.FixedVMs{Listed: append(c.there, template), Interface: "scsi0", SizeGiB: 10}, c.rules,
			})

			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}
