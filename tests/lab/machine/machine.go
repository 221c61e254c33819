// Package machine is the seam between the two halves of the lab: the virtual hardware that Proxmox VE makes, starts and
// destroys, and the operating system that runs in it. Neither half imports the other.
package machine

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"talos-proxmox/tests/lab/timeline"
)

// Content is what has been written to a disk or medium: an image, an installed system, a configuration. Hardware never
// looks inside; it copies and deletes.
type Content interface {
	// CloneContent returns a deep copy: what is written to a clone never shows in the original.
	CloneContent() Content
}

// File is a file that a host keeps, an image say. There is no more of it than its beginning, by which firmware
// recognises it.
type File struct{ Head []byte }

// CloneContent implements [Content].
func (f *File) CloneContent() Content { return f }

// Disk is one virtual disk. What is on it survives power cycles and is gone when the disk is deleted.
type Disk struct {
	// Interface is the bus position, "scsi0" or "virtio0".
	Interface string
	// Volume is the Proxmox volume id, "tank:vm-401-disk-0".
	Volume string

	store Store // nil: in memory

	mu      sync.Mutex
	size    int64
	content Content
}

// Store keeps a disk somewhere else than in memory.
type Store interface {
	Size() int64
	Content() Content
	Write(c Content)
}

// NewDiskOn returns a disk that is kept in a store.
func NewDiskOn(iface, volume string, s Store) *Disk {
	return &Disk{Interface: iface, Volume: volume, store: s}
}

// NewDisk returns a disk of the given size in bytes; nil content means blank.
func NewDisk(iface, volume string, size int64, content Content) *Disk {
	return &Disk{Interface: iface, Volume: volume, size: size, content: content}
}

// Size returns the size in bytes.
func (d *Disk) Size() int64 {
	if d.store != nil {
		return d.store.Size()
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	return d.size
}

// Resize sets the size in bytes of a disk in memory.
func (d *Disk) Resize(size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.size = size
}

// Content returns what is on the disk, nil when it is blank.
func (d *Disk) Content() Content {
	if d.store != nil {
		return d.store.Content()
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	return d.content
}

// Write replaces what is on the disk.
func (d *Disk) Write(c Content) {
	if d.store != nil {
		d.store.Write(c)

		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.content = c
}

// Clone copies a disk in memory, content included, to another volume.
func (d *Disk) Clone(volume string) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()

	var content Content
	if d.content != nil {
		content = d.content.CloneContent()
	}

	return NewDisk(d.Interface, volume, d.size, content)
}

// NIC is one network interface as the hardware presents it.
type NIC struct {
	MAC    string // upper case, colon separated
	Bridge string
	VLAN   int // 0: untagged
}

// CloudInit is what the cloud-init drive carries, as Proxmox writes it.
type CloudInit struct {
	// Format is how it is written: "nocloud", "configdrive2" or "opennebula". Systems look for one of them.
	Format    string
	Hostname  string
	Addresses []netip.Prefix // by NIC index; invalid: DHCP
	Gateways  []netip.Addr
	DNS       []netip.Addr
	UserData  string
}

// Hardware is what the firmware finds when a VM is powered on. It describes one power-on and is not changed while the
// VM runs; disks are shared with the VM.
type Hardware struct {
	Host      string
	VMID      int
	Name      string
	UUID      string
	Cores     int
	MemoryMiB int
	// UEFI says that the firmware is OVMF and no BIOS.
	UEFI bool
	NICs []NIC
	// Boot holds what the boot order names, in that order: each is a disk's or the CD-ROM's content, already resolved;
	// blank disks and empty drives are left out.
	Boot []BootDevice
	// Disks holds all disks, in the order of their interfaces.
	Disks []*Disk
	// CloudInit is nil without a cloud-init drive.
	CloudInit *CloudInit
	// AgentDevice tells whether the VM has the guest agent's virtio port.
	AgentDevice bool
	// PCI lists the devices passed through, as "0000:01:00.0".
	PCI []string
	// Reset restarts the VM as the guest would by itself: the hardware boots again, with its present settings.
	Reset func()
	// Poweroff stops the VM as the guest would by itself.
	Poweroff func()
	// After is the newest span of this VM when it was powered on (its start, its clone); what the guest imposes comes
	// after it. Nil when there is none.
	After *timeline.Span
	// Advance tells the hardware the guest's newest span, so that what the VM does next (a reset, a shutdown) is measured
	// after it. It may be nil, and need not be called.
	Advance func(*timeline.Span)
}

// BootDevice is one entry of the boot order.
type BootDevice struct {
	Disk   *Disk   // nil for a CD-ROM
	Medium Content // of the CD-ROM
}

// System is an operating system that runs in one VM, from power-on to power-off.
type System interface {
	// Shutdown asks the system to stop (ACPI) and returns when it has, or with the context's error.
	Shutdown(ctx context.Context) error
	// Kill is a power cut: listeners are closed before it returns. It may follow a Shutdown.
	Kill()
	// Agent answers the guest agent's network-get-interfaces; nil while no agent runs.
	Agent() []Interface
}

// Files is a system whose guest agent reads and writes files; ErrNoAgent while no agent runs.
type Files interface {
	// ReadFile returns the content of a file.
	ReadFile(path string) (string, error)
	// WriteFile replaces the content of a file, and makes it where it is not there.
	WriteFile(path, text string) error
}

// ErrNoAgent says that no guest agent runs.
var ErrNoAgent = errors.New("QEMU guest agent is not running")

// Interface is a network interface as the guest agent reports it.
type Interface struct {
	Name      string
	MAC       string
	Addresses []netip.Prefix
}

// Firmware boots what it finds on the hardware. It returns at once; the system comes up in the background.
type Firmware interface {
	PowerOn(hw Hardware) System
}
