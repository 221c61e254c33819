package spec

import (
	"maps"
	"reflect"
)

// With returns s with everything that over sets: what is nil in over is taken from s, maps merge by their keys,
// structs by their fields, and anything else is taken whole. haGroup and ha both say where a VM runs: what over sets
// of one takes the place of the other.
func (s VMSpec) With(over VMSpec) VMSpec {
	switch {
	case over.HA.Places() && over.HAGroup == nil:
		s.HAGroup = nil
	case over.HAGroup != nil && over.HA == nil && s.HA.Places():
		s.HA = nil
	}

	merge(reflect.ValueOf(&s).Elem(), reflect.ValueOf(over))

	return s
}

func merge(base, over reflect.Value) {
	switch over.Kind() { //nolint:exhaustive // a Shape holds no other kinds
	case reflect.Struct:
		for i := range over.NumField() {
			merge(base.Field(i), over.Field(i))
		}
	case reflect.Map:
		if over.IsNil() {
			return
		}

		both := maps.Clone(base.Interface().(map[string]string))
		if both == nil {
			both = map[string]string{}
		}

		maps.Copy(both, over.Interface().(map[string]string))
		base.Set(reflect.ValueOf(both))
	default:
		if !over.IsNil() {
			base.Set(over)
		}
	}
}

// IsZero says that nothing is set.
func (s VMSpec) IsZero() bool { return reflect.ValueOf(s).IsZero() }

// VMSpec is the size and kind of a VM, and how Kubernetes sees it. Values merge: built-in, defaults, pool, node.
// Labels, taints and annotations merge by their keys; every other value, lists included, is taken whole.
type VMSpec struct {
	// Virtual CPU cores.
	Cores *int `json:"cores,omitempty" jsonschema:"default=2,minimum=1,maximum=8192"`
	// CPU type that the guest sees.
	CPUType *string `json:"cpuType,omitempty" jsonschema:"default=host"`
	// CPU weight of the VM against the others of its host. Absent: 100, the default of Proxmox VE, for a new VM, and what
	// it has for an existing one. Changes while the VM runs.
	CPUUnits *int `json:"cpuUnits,omitempty" jsonschema:"minimum=1,maximum=10000"`
	// Expose the NUMA topology to the guest.
	NUMA *bool `json:"numa,omitempty" jsonschema:"default=false"`
	// Memory in MiB.
	MemoryMiB *int `json:"memoryMiB,omitempty" jsonschema:"default=4096,minimum=1024,maximum=100000000"`
	// Let Proxmox VE reclaim memory that the guest does not use, down to minimumMemoryMiB. Kubernetes does not expect
	// that.
	Ballooning *bool `json:"ballooning,omitempty" jsonschema:"default=false"`
	// Memory in MiB that a VM with ballooning keeps; required with it.
	MinimumMemoryMiB *int `json:"minimumMemoryMiB,omitempty" jsonschema:"minimum=1024,maximum=100000000"`
	// System disk in GiB; it can grow later, and never shrinks.
	DiskGiB *int `json:"diskGiB,omitempty" jsonschema:"default=40,minimum=6,maximum=1000000"`
	// Datastore and options of the system disk.
	Disk DiskOptions `json:"disk,omitempty"`
	// Additional disks, in order.
	ExtraDisks []ExtraDisk `json:"extraDisks,omitempty"`
	// Network interfaces; the first has the node's address. Absent: one, with the values of network.
	NICs []NIC `json:"nics,omitempty"`
	// Machine type. Absent: the template's, or q35.
	Machine *string `json:"machine,omitempty" jsonschema:"enum=q35,enum=i440fx"`
	// Firmware; ovmf gets an EFI disk. Absent: the template's, or ovmf.
	Firmware *string `json:"firmware,omitempty" jsonschema:"enum=seabios,enum=ovmf"`
	// A virtual TPM 2.0.
	TPM *bool `json:"tpm,omitempty" jsonschema:"default=false"`
	// SCSI controller. Absent: the template's, or virtio-scsi-pci.
	SCSIController *string `json:"scsiController,omitempty" jsonschema:"enum=virtio-scsi-pci,enum=virtio-scsi-single,enum=lsi,enum=lsi53c810,enum=megasas,enum=pvscsi"`
	// A serial console. Absent: true with kind k3s, because Ubuntu's images write to one, otherwise false.
	Serial *bool `json:"serial,omitempty"`
	// Start the VM when its host starts.
	OnBoot *bool `json:"onBoot,omitempty" jsonschema:"default=true"`
	// Order of start and stop when the host starts or stops. Absent: any.
	Startup *Startup `json:"startup,omitempty"`
	// Protect the VM from removal, in Proxmox VE and in Pulumi. Absent: true for control planes in production,
	// otherwise false.
	Protection *bool `json:"protection,omitempty"`
	// Tags of the VM in addition to those of the cluster.
	Tags []string `json:"tags,omitempty"`
	// Resource pool of Proxmox VE that the VM belongs to. Absent: none.
	ResourcePool *string `json:"resourcePool,omitempty"`
	// High-availability group of Proxmox VE 8 that keeps the VM running; on Proxmox VE 9, the rule that the group has
	// become. Absent: none.
	HAGroup *string `json:"haGroup,omitempty"`
	// High availability without a group: Proxmox VE keeps the VM running. Absent: only with haGroup. Where a pool or node
	// sets ha.hosts or ha.apart, a haGroup that it inherits does not apply, and the other way round.
	HA *HA `json:"ha,omitempty"`
	// Labels of the Kubernetes node.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the Kubernetes node, as key: value:Effect.
	Taints map[string]string `json:"taints,omitempty"`
	// Annotations of the Kubernetes node.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// DiskOptions are where and how a disk is kept.
type DiskOptions struct {
	// Datastore. Absent: proxmox.storage.disks.
	Datastore *string `json:"datastore,omitempty"`
	// Interface of the disk; with source template, that of the template. Absent: scsi0, and the next ones for
	// further disks.
	Interface *string `json:"interface,omitempty"`
	// Host cache. With source template, the system disk has this and the options below from the template.
	Cache *string `json:"cache,omitempty" jsonschema:"default=none,enum=none,enum=directsync,enum=writethrough,enum=writeback,enum=unsafe"`
	// Asynchronous I/O mode of the host; native needs cache none or directsync.
	AIO *string `json:"aio,omitempty" jsonschema:"default=io_uring,enum=io_uring,enum=native,enum=threads"`
	// Return deleted blocks to the datastore.
	Discard *bool `json:"discard,omitempty" jsonschema:"default=true"`
	// Tell the guest that it is a solid state disk.
	SSD *bool `json:"ssd,omitempty" jsonschema:"default=false"`
	// Use a separate I/O thread; a SCSI disk needs scsiController virtio-scsi-single.
	IOThread *bool `json:"iothread,omitempty" jsonschema:"default=false"`
	// Include the disk in backups.
	Backup *bool `json:"backup,omitempty" jsonschema:"default=true"`
	// Include the disk in replication.
	Replicate *bool `json:"replicate,omitempty" jsonschema:"default=true"`
}

// ExtraDisk is a disk in addition to the system disk.
type ExtraDisk struct {
	// Size in GiB.
	SizeGiB int `json:"sizeGiB" jsonschema:"minimum=1,maximum=1000000"`
	// A file system on the disk, which Talos makes and mounts. Needs Talos 1.10 and a SCSI disk. Absent: the disk
	// stays as it is.
	Volume *Volume `json:"volume,omitempty"`
	DiskOptions
}

// Volume is a user volume of Talos, which has the whole of an additional disk.
type Volume struct {
	// Name of the volume: up to 34 letters, digits and dashes. Talos mounts it at /var/mnt/<name>, where pods reach it by
	// hostPath. The addons longhorn, local-path and openebs keep their data on the volume of their name.
	Name string `json:"name"`
	// File system. It is made once: a change has no effect on a volume that exists.
	Filesystem string `json:"filesystem,omitempty" jsonschema:"default=xfs,enum=xfs,enum=ext4"`
}

// NIC is a network interface.
type NIC struct {
	// Bridge. Absent: network.bridge.
	Bridge string `json:"bridge,omitempty"`
	// VLAN tag; 0 is untagged. Absent: network.vlan.
	VLAN *int `json:"vlan,omitempty" jsonschema:"minimum=0,maximum=4094"`
	// MTU; 1 means the bridge's. Absent: network.mtu.
	MTU *int `json:"mtu,omitempty" jsonschema:"minimum=1,maximum=65520"`
	// Filter the traffic with the Proxmox VE firewall. Absent: as firewall.enabled.
	Firewall *bool `json:"firewall,omitempty"`
}

// Startup is the order in which a host starts its VMs; they stop the other way round.
type Startup struct {
	// Position; lower starts earlier.
	Order *int `json:"order,omitempty" jsonschema:"minimum=0,maximum=100000"`
	// Seconds to wait before the next VM starts.
	UpDelaySeconds int `json:"upDelaySeconds,omitempty" jsonschema:"minimum=0,maximum=86400"`
	// Seconds that the VM gets to shut down with its host, which then stops it. Absent or 0: 180, the default of Proxmox
	// VE.
	DownDelaySeconds int `json:"downDelaySeconds,omitempty" jsonschema:"minimum=0,maximum=86400"`
}

// HA is what high availability does with a VM. An empty block keeps it running, wherever that is.
type HA struct {
	// Hosts that the VMs of the pool prefer, each with a priority if it has one, as pve1:2. Needs Proxmox VE 9. Absent:
	// all.
	Hosts []string `json:"hosts,omitempty"`
	// Run the VMs on these hosts only.
	Strict bool `json:"strict,omitempty"`
	// Keep the VMs of the pool on different hosts. Needs Proxmox VE 9.
	Apart bool `json:"apart,omitempty"`
}

// Places says that Proxmox VE is told where VMs run.
func (h *HA) Places() bool { return h != nil && (len(h.Hosts) > 0 || h.Apart) }
