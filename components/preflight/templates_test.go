package preflight

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
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
