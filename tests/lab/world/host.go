package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// GiB is the unit in which Proxmox VE's users think of disks.
const GiB = int64(1) << 30

// MiB is the unit of memory and of small disks.
const MiB = int64(1) << 20

// Host is a Proxmox VE node.
type Host struct {
	Name      string
	VCPU      int
	MemoryMiB int
	// Bridges are the network bridges; empty: "vmbr0".
	Bridges []string
	// MTU is that of bridges, by name; absent: 1500.
	MTU      map[string]int
	Storages []Storage
	// Address is the host's own address, as its network configuration and the cluster report it.
	Address netip.Addr
	// PCI are the devices on the host's PCI bus; none is enough for a host without passthrough.
	PCI []PCIDevice
	// NoIOMMU hosts pass no device through: their IOMMU is missing or switched off.
	NoIOMMU bool
	// ClockSkew is how far the host's clock is ahead.
	ClockSkew time.Duration
	// Offline hosts are in the cluster and answer nothing.
	Offline bool

	// unresponsive hosts run on without the daemons that answer; to the cluster they are online.
	unresponsive bool
	// said is what pvestatd has last broadcast of the host's VMs; nil: all that is so.
	said map[int]VMInfo
	// heard is what it has broadcast while all is well, at.
	heard map[int]VMInfo
	at    time.Time
}

// Storage is a datastore. A storage of the same name on several hosts is one entry of the cluster's configuration:
// shared ones hold the same volumes everywhere, others hold volumes of their own on each host.
type Storage struct {
	Name string
	// Type is Proxmox VE's: lvmthin, lvm, zfspool, dir, nfs, cifs, rbd, cephfs, btrfs.
	Type string
	// Content is what the storage may hold: images, iso, vztmpl, snippets, import, backup, rootdir.
	Content []string
	SizeGiB int
	// Shared is implied by the network types.
	Shared bool
	// Disabled storages are in the configuration and not used.
	Disabled bool
	// Inactive storages cannot be reached from the host: a share that is gone, a disk that is not mounted.
	Inactive bool

	hosts, inactive []string
}

var sharedTypes = []string{"nfs", "cifs", "rbd", "cephfs", "iscsi", "glusterfs"}

// files tells whether volumes are files in directories, which shows in their names.
func (s *Storage) files() bool {
	return slices.Contains([]string{"dir", "nfs", "cifs", "cephfs", "btrfs", "glusterfs"}, s.Type)
}

// linked tells whether the storage can make linked clones.
func (s *Storage) linked() bool { return s.Type != "lvm" && s.Type != "btrfs" }

// rawOnly is where a storage's plugin refuses another format than raw, empty when it does not.
func (s *Storage) rawOnly() string {
	switch s.Type {
	case "lvmthin":
		return "/usr/share/perl5/PVE/Storage/LvmThinPlugin.pm line 88"
	case "lvm":
		return "/usr/share/perl5/PVE/Storage/LVMPlugin.pm line 369"
	case "zfspool":
		return "/usr/share/perl5/PVE/Storage/ZFSPoolPlugin.pm line 239"
	default:
		return ""
	}
}

// roundUp is the size of the image that a storage makes when it is asked for a size.
func (s *Storage) roundUp(size int64) int64 {
	unit := int64(1)

	switch s.Type {
	case "lvmthin", "lvm":
		unit = 4 * MiB // an extent
	case "zfspool", "rbd":
		unit = MiB
	}

	return (size + unit - 1) / unit * unit
}

func (s *Storage) holds(content string) bool { return slices.Contains(s.Content, content) }

// Path is where file storages keep their files.
func (s *Storage) Path() string {
	switch {
	case !s.files():
		return ""
	case s.Name == "local":
		return "/var/lib/vz"
	default:
		return "/mnt/pve/" + s.Name
	}
}

func (w *World) addHost(h Host) error {
	if h.Name == "" {
		return fmt.Errorf("a host needs a name")
	}

	if slices.ContainsFunc(w.hosts, func(o *Host) bool { return o.Name == h.Name }) {
		return fmt.Errorf("host %q is there twice", h.Name)
	}

	if len(h.Bridges) == 0 {
		h.Bridges = []string{"vmbr0"}
	}

	if h.VCPU == 0 {
		h.VCPU = 16
	}

	if h.MemoryMiB == 0 {
		h.MemoryMiB = 65536
	}

	if err := verifyPCI(h.Name, h.PCI); err != nil {
		return err
	}

	for _, s := range h.Storages {
		if err := w.addStorage(h.Name, s); err != nil {
			return err
		}
	}

	w.hosts = append(w.hosts, &h)

	return nil
}

func (w *World) addStorage(host string, s Storage) error {
	if slices.Contains(sharedTypes, s.Type) {
		s.Shared = true
	}

	if s.Inactive {
		s.inactive = []string{host}
	}

	i := slices.IndexFunc(w.storages, func(o *Storage) bool { return o.Name == s.Name })
	if i < 0 {
		s.hosts = []string{host}
		w.storages = append(w.storages, &s)

		return nil
	}

	if w.storages[i].Type != s.Type || w.storages[i].Shared != s.Shared {
		return fmt.Errorf("storage %q has one type in the whole cluster: %q on host %s, %q before", s.Name, s.Type, host,
			w.storages[i].Type)
	}

	w.storages[i].hosts = append(w.storages[i].hosts, host)
	w.storages[i].inactive = append(w.storages[i].inactive, s.inactive...)

	return nil
}

// host finds a host that answers.
func (w *World) host(name string) (*Host, error) {
	i := slices.IndexFunc(w.hosts, func(h *Host) bool { return h.Name == name })
	if i < 0 {
		return nil, failf("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name,
			name)
	}

	switch h := w.hosts[i]; {
	case h.Offline:
		return nil, &Error{Code: 595, Reason: "No route to host"}
	case h.unresponsive:
		return nil, &Error{Code: 595, Reason: "Connection refused"}
	default:
		return h, nil
	}
}

// Reach tells whether a host answers, with the error a client gets when it does not.
func (w *World) Reach(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.host(name)

	return err
}

// RemovePCI takes a device out of a host.
func (w *World) RemovePCI(name, bdf string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, h := range w.hosts {
		if h.Name == name {
			h.PCI = slices.DeleteFunc(slices.Clone(h.PCI), func(d PCIDevice) bool { return d.BDF == bdf })

			return nil
		}
	}

	return fmt.Errorf("no host %q", name)
}

// storage finds a storage that a host can use.
func (w *World) storage(host, name string) (*Storage, error) {
	i := slices.IndexFunc(w.storages, func(s *Storage) bool { return s.Name == name })
	if i < 0 {
		return nil, failf("storage '%s' does not exist", name)
	}

	if w.storages[i].Disabled {
		return nil, failf("storage '%s' is disabled", name)
	}

	if !slices.Contains(w.storages[i].hosts, host) {
		return nil, failf("storage '%s' is not available on node '%s'", name, host)
	}

	return w.storages[i], nil
}

// activate refuses to work with a storage that the host cannot reach.
func (s *Storage) activate(host string) error {
	switch {
	case !slices.Contains(s.inactive, host):
		return nil
	case s.Shared:
		return failf("storage '%s' is not online", s.Name)
	case s.files():
		return failf("unable to activate storage '%s' - directory '%s' does not exist or is unreachable", s.Name, s.Path())
	default:
		return failf("could not activate storage '%s', zfs error: cannot import '%s': no such pool available", s.Name, s.Name)
	}
}

// imageStorage finds a storage for disks.
func (w *World) imageStorage(host, name string) (*Storage, error) {
	s, err := w.storage(host, name)
	if err != nil {
		return nil, err
	}

	if !s.holds("images") {
		return nil, Invalid("storage", "storage '%s' does not support vm images", name)
	}

	return s, s.activate(host)
}

// room refuses to give an image more than a storage has left. Only the storages that set the whole size aside do: on
// the others it is the guest that fills them.
func (w *World) room(host string, s *Storage, id string, more int64) error {
	if info := w.storageInfo(host, s); more <= info.Total-info.Used {
		return nil
	}

	_, name, _ := strings.Cut(id, ":")

	switch full := w.full[s.Name]; s.Type {
	case "zfspool":
		return failf("zfs error: cannot create '%s/%s': out of space", s.Name, name)
	case "lvm":
		return failf(`lvcreate '%s/%s' error:   Volume group "%s" has insufficient free space`, s.Name, name, s.Name)
	case "lvmthin":
		if full {
			return failf("lvcreate '%s/%s' error:   Cannot create new thin volume, free space in thin pool %s/data reached "+
				"threshold.", s.Name, name, s.Name)
		}
	default:
		if full {
			return failf("unable to create image: No space left on device")
		}
	}

	return nil
}

func (s *Storage) contentList() string { return strings.Join(s.Content, ",") }
