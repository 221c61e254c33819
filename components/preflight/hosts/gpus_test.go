package hosts

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

func TestGPUs(t *testing.T) {
	p := func() *plan.Plan {
		s := spec.Spec{
			Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "a"}, {Name: "b"}}},
			Cluster: spec.Cluster{Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
			Network: spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
			Pools: map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"},
				"gpu": {Role: spec.RoleWorker, Addresses: "10.0.0.31-39", GPUs: map[string]spec.GPUSpec{
					"1": {BDF: "0000:01:00.0", NodeSpec: spec.NodeSpec{Host: "a"}},
					"2": {BDF: "0000:02:00", NodeSpec: spec.NodeSpec{Host: "b"}},
				}},
			},
		}

		return plantest.New(t, s)
	}

	card := proxmoxapi.PCIDevice{BDF: "0000:01:00.0", ID: "10de:2204", Class: "0x030000", IOMMUGroup: 14}
	sound := proxmoxapi.PCIDevice{BDF: "0000:01:00.1", ID: "10de:1aef", Class: "0x040300", IOMMUGroup: 14}
	other := proxmoxapi.PCIDevice{BDF: "0000:02:00.0", ID: "10de:2204", Class: "0x030000", IOMMUGroup: 15}
	bridge := proxmoxapi.PCIDevice{BDF: "0000:00:01.0", ID: "8086:1901", Class: "0x060400", IOMMUGroup: 15}
	disk := proxmoxapi.PCIDevice{BDF: "0000:03:00.0", ID: "144d:a808", Class: "0x010802", Name: "NVMe", IOMMUGroup: 15}

	s := read(t, p(), &preflighttest.ManyHosts{Devices: map[string][]proxmoxapi.PCIDevice{
		"a": {card, sound},
		"b": {bridge, other, disk},
	}})
	require.NoError(t, s.CheckGPUs(t.Context()))
	assert.Equal(t, map[string]proxmoxapi.PCIDevice{"c-gpu-1": card, "c-gpu-2": other}, s.Devices)
	assert.Equal(t, spec.Problems{{
		Path: "pools.gpu.gpus.2.bdf", Rule: "shares IOMMU group 15 of host b with 0000:03:00.0 (NVMe), which the host " +
			"loses too",
		Value: "0000:02:00", Remedy: "put the card into another slot",
	}}, s.Warnings)

	card.IOMMUGroup = -1
	s = read(t, p(), &preflighttest.ManyHosts{Devices: map[string][]proxmoxapi.PCIDevice{"a": {card}}})
	require.NoError(t, s.CheckGPUs(t.Context()))
	assert.EqualError(t, s.Problems.Err(), `the configuration has 2 problems:
  - pools.gpu.gpus.1.bdf: cannot be passed through: the IOMMU of host a is off (given: 0000:01:00.0); `+
		`switch it on in the firmware and in the kernel's command line, and restart the host
  - pools.gpu.gpus.2.bdf: is not a PCI device of host b (given: 0000:02:00); run 'lspci -Dnn' on that host, and correct it`)

	// A card that is gone and a host that is down stop nothing that is there already.
	there := &preflighttest.ManyHosts{Unreachable: "b"}
	for _, n := range p().Nodes() {
		there.Listed = append(there.Listed, proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: n.Host})
	}

	s = read(t, p(), there)
	require.NoError(t, s.CheckGPUs(t.Context()))
	assert.Empty(t, s.Devices)
	assert.Equal(t, spec.Problems{
		{
			Path: "pools.gpu.gpus.1.bdf", Rule: "is not a PCI device of host a any more: the VM does not start without it",
			Value:  "0000:01:00.0",
			Remedy: "run 'lspci -Dnn' on that host, and correct it",
		},
		{Path: "pools.gpu.gpus.2.bdf", Rule: "was not checked: Proxmox VE cannot reach host b", Value: "0000:02:00"},
	}, s.Warnings)

	s = read(t, p(), &preflighttest.ManyHosts{
		Unreachable: "b",
		Devices:     map[string][]proxmoxapi.PCIDevice{"a": {other, {BDF: "0000:01:00.0", IOMMUGroup: 1}}},
	})
	require.NoError(t, s.CheckGPUs(t.Context()))
	assert.EqualError(t, s.Problems.Err(), `the configuration has 1 problem:
  - proxmox.hosts: does not answer, but new nodes are planned on it (given: b); repair it, or take it out`)
}

// gpuVMs have GPUs by resource mappings.
type gpuVMs struct {
	preflighttest.ManyHosts

	mappings map[string][]proxmoxapi.Mapped
	has      map[int]string // the mapping of a VM
}

func (g *gpuVMs) Mappings(context.Context) (map[string][]proxmoxapi.Mapped, error) {
	return g.mappings, nil
}

func (g *gpuVMs) Config(_ context.Context, v proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	c := proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 40}}
	if mapping := g.has[v.ID]; mapping != "" {
		c.Devices = []proxmoxapi.Device{{Mapping: mapping}}
	}

	return c, nil
}

// TestGPUOfExistingNode: the GPU of a VM that exists is one of its host, which no other VM has.
func TestGPUOfExistingNode(t *testing.T) {
	s := spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "a"}, {Name: "b"}}},
		Cluster: spec.Cluster{Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Network: spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"},
			"gpu": {Role: spec.RoleWorker, Addresses: "10.0.0.31-39", GPUs: map[string]spec.GPUSpec{
				"1": {BDF: "0000:01:00.0", NodeSpec: spec.NodeSpec{Host: "a"}},
			}},
		},
	}

	const onOther = "pools.gpu.gpus.1.host: does not change for a VM that exists: c-gpu-1 (VMID 601) is on host b, and " +
		"does not start with a GPU of another host (given: a); set host to b, with a GPU of that host; or "

	at := func(host, bdf string) []proxmoxapi.Mapped { return []proxmoxapi.Mapped{{Host: host, BDF: bdf}} }

	for name, c := range map[string]struct {
		host   string // where the VM of the node is
		maps   []proxmoxapi.Mapped
		change func(*plan.Plan)
		silent string
		want   string
	}{
		"as it was made":   {host: "a", maps: at("a", "0000:01:00.0")},
		"another host":     {host: "b", maps: at("b", "0000:01:00.0"), want: onOther + "name the node in lifecycle.replace"},
		"made again there": {host: "b", maps: at("b", "0000:01:00.0"), change: func(p *plan.Plan) { p.Replace = []string{"c-gpu-1"} }},
		"external": {
			host: "b", maps: at("b", "0000:01:00.0"), change: func(p *plan.Plan) { p.Bootstrap = spec.BootstrapExternal },
			want: onOther + "take the node out of its cluster",
		},
		"migrated by an operator": {host: "b", maps: append(at("a", "0000:01:00.0"), at("b", "0000:07:00.0")...)},
		"mapping not visible":     {host: "b"},
		"its host is silent":      {host: "b", maps: at("b", "0000:01:00.0"), silent: "b", want: onOther},
		"another card":            {host: "a", maps: at("a", "0000:09:00.0")},
		"the card of another VM": {
			host: "a", maps: at("a", "0000:02:00.0"),
			change: func(p *plan.Plan) { p.Pools[1].Nodes[0].GPU.BDF = "0000:03:00.0" },
			want: "pools.gpu.gpus.1.bdf: is in use by gaming (VMID 700) on host a (given: 0000:03:00.0); take it from that VM, " +
				"or name another GPU",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, s)
			if c.change != nil {
				c.change(p)
			}

			require.Equal(t, 601, p.Pools[1].Nodes[0].VMID)

			g := &gpuVMs{
				ManyHosts: preflighttest.ManyHosts{
					Listed: []proxmoxapi.VM{
						{ID: 401, Name: "c-control-1", Host: "a", Tags: []string{"c", "controlplane", "talos"}},
						{ID: 601, Name: "c-gpu-1", Host: c.host, Tags: []string{"c", "talos", "worker"}},
						{ID: 700, Name: "gaming", Host: "a"},
					},
					Devices: map[string][]proxmoxapi.PCIDevice{"a": {{BDF: "0000:01:00.0"}, {BDF: "0000:03:00.0"}}},
				},
				mappings: map[string][]proxmoxapi.Mapped{"other": at("a", "0000:03:00.0")},
				has:      map[int]string{601: "c-gpu-1", 700: "other"},
			}
			if c.maps != nil {
				g.mappings["c-gpu-1"] = c.maps
			}

			found := read(t, p, g)

			for _, v := range g.Listed[:2] {
				if c.silent == "" || v.Host != c.silent {
					config, err := g.Config(t.Context(), v)
					require.NoError(t, err)

					found.Identified[v.ID] = vmidentity.Found{VM: v, Config: config}
				}
			}

			require.NoError(t, found.CheckGPUs(t.Context()))

			if c.want == "" {
				assert.Empty(t, found.Problems)
			} else {
				require.Len(t, found.Problems, 1)
				assert.Contains(t, found.Problems[0].String(), c.want)
			}
		})
	}
}
