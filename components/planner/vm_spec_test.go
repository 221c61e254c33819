package planner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/spec"
)

// workersWith is a pool of two workers.
func workersWith(s spec.VMSpec) spec.Pool {
	return spec.Pool{Role: spec.RoleWorker, Count: new(2), Addresses: "10.0.1.11-10.0.1.19", VMSpec: s}
}

// TestBallooningOfDefaults: a pool or node can do without the ballooning of defaults, whose minimum then has no meaning.
func TestBallooningOfDefaults(t *testing.T) {
	t.Parallel()

	balloons := spec.VMSpec{Ballooning: new(true), MinimumMemoryMiB: new(2048)}
	not := spec.VMSpec{Ballooning: new(false)}
	gpu := func(s spec.VMSpec) spec.Pool {
		return spec.Pool{
			Role: spec.RoleWorker, GPUs: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}},
			Addresses: "10.0.1.11-10.0.1.19", Image: spec.PoolImage{Template: "9000"}, VMSpec: s,
		}
	}

	for name, test := range map[string]struct {
		defaults spec.VMSpec
		pool     spec.Pool
		want     []string
		least    int // of the first node of the pool
	}{
		"as defaults":  {defaults: balloons, pool: workersWith(spec.VMSpec{}), least: 2048},
		"not the pool": {defaults: balloons, pool: workersWith(not), least: 4096},
		"not a node": {
			defaults: balloons, least: 4096,
			pool: spec.Pool{
				Role: spec.RoleWorker, Nodes: map[string]spec.NodeSpec{"1": {VMSpec: not}}, Addresses: "10.0.1.11",
			},
		},
		"only the pool": {
			defaults: spec.VMSpec{MinimumMemoryMiB: new(2048)}, least: 2048,
			pool: workersWith(spec.VMSpec{Ballooning: new(true)}),
		},
		"no pool": {
			defaults: spec.VMSpec{MinimumMemoryMiB: new(2048)}, pool: workersWith(spec.VMSpec{}),
			want: []string{"defaults.minimumMemoryMiB: needs ballooning: true (given: 2048); add that, or leave it out"},
		},
		"the pool's own minimum": {
			defaults: balloons, pool: workersWith(spec.VMSpec{Ballooning: new(false), MinimumMemoryMiB: new(3072)}),
			want: []string{"pools.worker.minimumMemoryMiB: needs ballooning: true (given: 3072); add that, or leave it out"},
		},
		"no minimum": {
			defaults: spec.VMSpec{Ballooning: new(true)}, pool: workersWith(not),
			want: []string{"pools.control.ballooning: has no effect without minimumMemoryMiB (given: true); set the memory " +
				"that the VM keeps, which is less than memoryMiB, 4096, or set ballooning: false"},
		},
		"all of its memory": {
			defaults: balloons, pool: workersWith(spec.VMSpec{MinimumMemoryMiB: new(4096)}),
			want: []string{"pools.worker.minimumMemoryMiB: must be less than memoryMiB, 4096: ballooning would give nothing " +
				"back (given: 4096); lower it, or set ballooning: false, for which a VM that runs restarts"},
		},
		"a GPU": {
			defaults: balloons, pool: gpu(spec.VMSpec{}),
			want: []string{"pools.worker.ballooning: must be off: the memory of a VM with a GPU is pinned (given: true); " +
				"write ballooning: false"},
		},
		"a GPU without": {defaults: balloons, pool: gpu(not), least: 4096},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().with("worker", test.pool)
			s.Defaults = test.defaults

			if got := said(t, s); !assert.Equal(t, test.want, got) || got != nil {
				return
			}

			n := placed(t, s).Pools[1].Nodes[0]
			assert.Equal(t, test.least, n.MinimumMemoryMiB)
			assert.Equal(t, test.least != 4096, n.Ballooning)
		})
	}
}

// TestSCSIControllers: the firmware finds the system disk, and Talos all disks.
func TestSCSIControllers(t *testing.T) {
	t.Parallel()

	const (
		inTalos = "pools.worker.scsiController: has no driver in Talos, which does not find the disks on scsi (given: lsi); " +
			"leave it out, or put the disks on virtio or sata"
		inOVMF = "pools.worker.scsiController: has no driver in the firmware ovmf, which does not boot the system disk on " +
			"scsi (given: megasas); leave it out, or put the disks on virtio or sata, or set firmware to seabios"
	)

	with := func(controller, firmware, system string, more ...string) spec.VMSpec {
		s := spec.VMSpec{SCSIController: new(controller), Disk: spec.DiskOptions{Interface: new(system)}}
		if firmware != "" {
			s.Firmware = new(firmware)
		}

		for _, at := range more {
			s.ExtraDisks = append(s.ExtraDisks, spec.ExtraDisk{SizeGiB: 5, DiskOptions: spec.DiskOptions{Interface: new(at)}})
		}

		return s
	}

	for name, test := range map[string]struct {
		defaults, pool spec.VMSpec
		k3s, factory   bool
		want           []string
	}{
		"virtio":                {pool: with("virtio-scsi-single", "ovmf", "scsi0"), factory: true},
		"pvscsi":                {pool: with("pvscsi", "ovmf", "scsi0"), factory: true},
		"lsi":                   {pool: with("lsi", "seabios", "scsi0"), want: []string{inTalos}},
		"lsi, further disk":     {pool: with("lsi", "seabios", "virtio0", "scsi0"), want: []string{inTalos}},
		"lsi without a disk":    {pool: with("lsi", "ovmf", "virtio0", "virtio1")},
		"lsi of K3s":            {pool: with("lsi", "seabios", "scsi0"), k3s: true},
		"lsi of K3s, data disk": {pool: with("lsi", "ovmf", "virtio0", "scsi0"), k3s: true},
		"lsi of K3s in OVMF": {
			pool: with("lsi53c810", "ovmf", "scsi0"), k3s: true,
			want: []string{strings.Replace(inOVMF, "megasas", "lsi53c810", 1)},
		},
		"lsi of defaults": {
			defaults: spec.VMSpec{SCSIController: new("lsi")},
			want:     []string{strings.Replace(inTalos, "worker", "control", 1), inTalos},
		},
		"megasas in OVMF":         {pool: with("megasas", "ovmf", "scsi0"), want: []string{inOVMF}},
		"megasas in a template":   {pool: with("megasas", "", "scsi0")},
		"megasas in a new VM":     {pool: with("megasas", "", "scsi0"), factory: true, want: []string{inOVMF}},
		"megasas in SeaBIOS":      {pool: with("megasas", "seabios", "scsi0"), factory: true},
		"megasas with data disks": {pool: with("megasas", "", "virtio0", "scsi0"), factory: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().with("worker", workersWith(test.pool))
			s.Defaults = test.defaults

			switch {
			case test.k3s:
				s = onK3s(s)
			case test.factory:
				s.Image, s.Network.Gateway = spec.Image{}, "10.0.0.1"
			}

			assert.Equal(t, test.want, said(t, s))
		})
	}
}

// onK3s makes a cluster of K3s of a spec.
func onK3s(s draft) draft {
	s.Cluster.Distribution, s.Cluster.Versions = spec.DistributionK3s, spec.Versions{K3s: "v1.34.2+k3s1"}
	s.Image = spec.Image{Source: spec.SourceTemplate, Template: spec.TemplateImage{Control: "9100", Worker: "9100"}}
	s.Network.CIDR, s.Network.Gateway = "10.0.0.0/15", "10.0.0.1"
	s.Proxmox.SSH, s.Provided.SSHKey = &spec.SSH{Username: "root"}, true

	return s
}

// TestCPUTypes: Talos halts on a CPU that lacks the instructions that it is compiled for.
func TestCPUTypes(t *testing.T) {
	t.Parallel()

	refused := func(value string) string {
		return "pools.worker.cpuType: must offer the instructions of x86-64-v2: Talos does not boot without them (given: " +
			value + "); set x86-64-v2-AES or host"
	}

	for name, test := range map[string]struct {
		value string
		k3s   bool
		want  []string
	}{
		"host":                         {value: "host"},
		"the default of Proxmox VE":    {value: "x86-64-v2-AES"},
		"the first with x86-64-v2":     {value: "Nehalem"},
		"AMD's first with x86-64-v2":   {value: "Opteron_G4"},
		"of the operator":              {value: "custom-kvm64"},
		"the former default":           {value: "kvm64", want: []string{refused("kvm64")}},
		"the last without, of Intel":   {value: "Penryn", want: []string{refused("Penryn")}},
		"the last without, of AMD":     {value: "Opteron_G3", want: []string{refused("Opteron_G3")}},
		"the former default, with K3s": {value: "kvm64", k3s: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().with("worker", workersWith(spec.VMSpec{CPUType: new(test.value)}))
			if test.k3s {
				s = onK3s(s)
			}

			assert.Equal(t, test.want, said(t, s))
		})
	}
}
