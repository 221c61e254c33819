package planner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/ranges"
	"talos-proxmox/components/spec"
)

// Where drives go: on q35 the provider takes no others, and a VM has one ISO file at most.
const (
	cdromDrive     = "ide2"
	cloudInitDrive = "ide0"
)

// makeNodes gives each ordinal its name, VMID, MAC and address. Nothing here depends on other pools or on how many
// nodes there are, so growing a pool changes nothing that exists.
func (r *resolver) makeNodes(p *pool) {
	if len(p.members) == 0 {
		return
	}

	names := newNamer(p.Names, r.Spec.Cluster.Name, p.name)
	like := r.node(p, p.vmDefaults)
	nics := r.nics(p.vmDefaults)

	p.planned.Nodes = make([]plan.Node, 0, len(p.members))
	// One allocation for all that have as many as the pool says.
	all := make([]plan.Interface, len(p.members)*len(nics))

	for i, m := range p.members {
		n, own := like, nics

		if m.statesVM() {
			vm := p.vmDefaults.With(m.VMSpec)
			n, own = r.node(p, vm), r.nics(vm)
		}

		n.Ordinal = m.ordinal
		n.Name = names.name(m.ordinal)
		n.ImageKey = imageKey(p.planned, n.Name)
		n.Patches = m.Patches
		n.VMID, _ = p.vmids.Nth(m.ordinal, ranges.VMIDCount, ranges.VMIDAt)
		n.Address = r.address(p, m)
		n.Static = p.Addressing == spec.AddressingStatic || m.Addressing == spec.AddressingStatic

		if n.NICs = all[i*len(nics) : (i+1)*len(nics) : (i+1)*len(nics)]; len(own) != len(nics) {
			n.NICs = make([]plan.Interface, len(own))
		}

		for j := range own {
			n.NICs[j] = own[j]
			n.NICs[j].MAC = mac(r.Spec.Cluster.Name, n.Name, j)
		}

		if m.MAC != "" && len(own) > 0 {
			text, err := parseMAC(m.MAC)
			if err != nil {
				r.Problems.Add(m.path+".mac", err.Error(), m.MAC, "write it like 02:00:00:00:00:01")
			}

			n.NICs[0].MAC = text
		}

		if len(own) > 0 {
			n.MAC = n.NICs[0].MAC
		}

		if m.gpu != nil {
			n.GPU = &plan.GPU{
				BDF: m.gpu.BDF, PCIe: valueOr(m.gpu.PCIe, true), ROMBar: valueOr(m.gpu.ROMBar, true), Raw: m.gpu.Raw,
			}
		}

		p.planned.Nodes = append(p.planned.Nodes, n)
	}
}

// address is what the node states, else what its pool's range has for it.
func (r *resolver) address(p *pool, m poolNode) netip.Addr {
	if m.Address == "" {
		a, _ := p.addresses.Nth(m.ordinal, ranges.AddressCount, ranges.AddressAt)

		return a
	}

	a, err := netip.ParseAddr(m.Address)
	if err != nil || a.Zone() != "" {
		r.Problems.Add(m.path+".address", "must be an address", m.Address, "write it like 10.0.0.11")

		return netip.Addr{}
	}

	return a
}

// node is what the nodes of one pool and VMSpec share.
func (r *resolver) node(p *pool, s spec.VMSpec) plan.Node {
	image := p.planned.Image
	n := plan.Node{
		Cluster: r.Spec.Cluster.Name, Pool: p.name, Role: p.Role, Template: image.Template,
		Cores: *s.Cores, CPUType: *s.CPUType, NUMA: *s.NUMA, CPUUnits: valueOr(s.CPUUnits, 0),
		MemoryMiB: *s.MemoryMiB, Ballooning: *s.Ballooning,
		MinimumMemoryMiB: *s.MemoryMiB,
		Disks:            r.disks(s), TPM: *s.TPM, Serial: *s.Serial, OnBoot: *s.OnBoot,
		Protection: *s.Protection && !r.Spec.Lifecycle.Teardown, Startup: s.Startup,
		Machine: valueOr(s.Machine, ""), Firmware: valueOr(s.Firmware, ""), SCSIController: valueOr(s.SCSIController, ""),
		Tags:         tags(r.Spec.Cluster.Distribution, r.Spec.Cluster.Name, p.Role, s.Tags),
		ResourcePool: valueOr(s.ResourcePool, ""), HAGroup: valueOr(s.HAGroup, ""), HA: s.HA,
		Labels: s.Labels, Taints: s.Taints, Annotations: s.Annotations,
		Agent: r.IsK3s() || slices.Contains(image.Extensions, plan.GuestAgent),
	}

	if n.Ballooning {
		n.MinimumMemoryMiB = valueOr(s.MinimumMemoryMiB, n.MemoryMiB)
	}

	if image.Template == "" {
		n.Machine = cmp.Or(n.Machine, "q35")
		n.Firmware = cmp.Or(n.Firmware, defaultFirmware)
		n.SCSIController = cmp.Or(n.SCSIController, "virtio-scsi-pci")
		n.BootOrder = []string{n.Disks[0].Interface}
	}

	if p.GPUs != nil {
		n.Machine = "q35"
	}

	if image.ISO() {
		// The disk first: an empty one is passed over, and once Talos is on it the ISO file no longer matters.
		n.CDROM = cdromDrive
		n.BootOrder = append(n.BootOrder, cdromDrive)
	}

	// K3s nodes find there what they are, whoever gives them their addresses.
	if r.IsK3s() || r.Spec.Image.Platform == spec.PlatformNoCloud && r.Spec.Network.Addressing == spec.AddressingStatic {
		n.CloudInit = cloudInitDrive
	}

	return n
}

// nics of a VM, without their MAC addresses.
func (r *resolver) nics(s spec.VMSpec) []plan.Interface {
	configured := s.NICs
	if configured == nil {
		configured = []spec.NIC{{}}
	}

	all := make([]plan.Interface, 0, len(configured))
	for _, n := range configured {
		n.Bridge = cmp.Or(n.Bridge, r.Spec.Network.Bridge)
		all = append(all, plan.Interface{
			Bridge: n.Bridge, VLAN: valueOr(n.VLAN, r.Spec.Network.VLAN), MTU: valueOr(n.MTU, r.Spec.Network.MTU),
			Firewall: valueOr(n.Firewall, *r.Spec.Firewall.Enabled),
		})
	}

	return all
}

// mac derives a locally administered unicast address from cluster and node name, so that a DHCP reservation can be made
// before the VM exists and a VM made again keeps its lease. Further interfaces of the node are told apart by their
// index.
func mac(cluster, node string, index int) string {
	seed := make([]byte, 0, 128)
	seed = append(append(append(seed, cluster...), 0), node...)

	if index > 0 {
		seed = strconv.AppendInt(append(seed, 0), int64(index), 10)
	}

	h := sha256.Sum256(seed)
	h[0] = h[0]&^0b11 | 0b10

	var digits [12]byte

	hex.Encode(digits[:], h[:6])

	b := make([]byte, 0, len("00:00:00:00:00:00"))

	for i, d := range digits {
		if i > 0 && i%2 == 0 {
			b = append(b, ':')
		}

		if d >= 'a' {
			d -= 'a' - 'A'
		}

		b = append(b, d)
	}

	return string(b)
}

// parseMAC reads a MAC address that a VM may have and writes it as Proxmox VE does.
func parseMAC(text string) (string, error) {
	hw, err := net.ParseMAC(text)

	switch {
	case err != nil || len(hw) != 6:
		return "", fmt.Errorf("must be a MAC address")
	case hw[0]&1 == 1:
		return "", fmt.Errorf("must be the address of one interface, not of a group: its first byte must be even")
	default:
		return strings.ToUpper(hw.String()), nil
	}
}
