package world

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// VMInfo is what lists and status calls say of a VM.
type VMInfo struct {
	ID       int
	Host     string
	Name     string
	Running  bool
	Template bool
	Lock     string
	Tags     string
	Pool     string
	CPUs     int
	// Memory and Disk are sizes in bytes; Disk is that of the first boot disk.
	Memory, Disk int64
	Uptime       time.Duration
	PID          int
	Agent        bool
	Serial       bool
	// Display says that the configuration states one.
	Display bool
	Machine string
	// HAState is what high availability makes of the VM, empty when it does not manage it; HAGroup may be empty.
	HAState, HAGroup string
	// Unheard says that the cluster has no broadcast about the VM: it knows no name of it, no power, no sizes.
	Unheard bool
}

func (w *World) info(v *vm) VMInfo {
	i := VMInfo{
		ID: v.id, Host: v.host, Name: v.subject(), Template: v.template(), Lock: v.conf["lock"], Tags: v.conf["tags"],
		Pool: w.poolOf(v.id),
		CPUs: intOf(v.conf, "cores", 1) * intOf(v.conf, "sockets", 1), Memory: int64(memoryMiB(v.conf)) * MiB,
		Agent: agentEnabled(v.conf), Serial: v.conf["serial0"] != "", Machine: v.conf["machine"],
		Display: v.conf["vga"] != "",
	}

	i.HAGroup, i.HAState = w.haStatus(v.id)

	if n := intOf(v.conf, "vcpus", 0); n > 0 {
		i.CPUs = n
	}

	for _, key := range bootKeys(v.conf) {
		if d, err := parseDrive(key, v.conf[key]); err == nil && !d.cdrom() && isDrive(key) && i.Disk == 0 {
			i.Disk, _ = parseSize(d.properties["size"])
		}
	}

	if v.run != nil {
		i.Running, i.PID, i.Uptime = true, v.run.pid, time.Since(v.run.started)
	}

	return i
}

// VM returns the status of a VM.
func (w *World) VM(host string, id int) (VMInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.find(host, id)
	if err != nil {
		return VMInfo{}, err
	}

	return w.info(v), nil
}

// VMs returns the VMs that a caller may see, of one host or, when none is named, of all.
func (w *World) VMs(c Caller, host string) []VMInfo {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []VMInfo

	for _, id := range sortedKeys(w.vms) {
		if v := w.vms[id]; (host == "" || v.host == host) && w.allowed(c.ID, v.path(), "VM.Audit") {
			list = append(list, w.info(v))
		}
	}

	return list
}

// Config returns a VM's configuration as it looks in JSON: with what is pending, or as the running machine has it.
func (w *World) Config(host string, id int, current bool) (map[string]any, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.find(host, id)
	if err != nil {
		return nil, err
	}

	conf := v.conf
	if !current {
		conf = v.effective()
	}

	out := jsonValues(conf)
	out["digest"] = v.digest()

	return out, nil
}

// PendingItem is one setting and what becomes of it with the next start.
type PendingItem struct {
	Key            string
	Value, Pending any
	Delete         bool
}

// Pending returns a VM's settings with the changes that wait for a start.
func (w *World) Pending(host string, id int) ([]PendingItem, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.find(host, id)
	if err != nil {
		return nil, err
	}

	now, next := jsonValues(v.conf), jsonValues(v.pending)

	var list []PendingItem

	for _, key := range sortedKeys(now) {
		list = append(list, PendingItem{Key: key, Value: now[key], Pending: next[key], Delete: v.remove[key]})
	}

	for _, key := range sortedKeys(next) {
		if _, known := now[key]; !known {
			list = append(list, PendingItem{Key: key, Pending: next[key]})
		}
	}

	return list, nil
}

// HostInfo is what is known of a host.
type HostInfo struct {
	Name    string
	Online  bool
	VCPU    int
	Memory  int64
	Used    int64
	Uptime  time.Duration
	Address netip.Addr
	Bridges []string
	// MTU is that of bridges that state one.
	MTU map[string]int
	// Order is the host's number in the cluster, from 1.
	Order int
	// ClockSkew is how far its clock is ahead.
	ClockSkew time.Duration
}

// Hosts returns the hosts in the order in which they joined.
func (w *World) Hosts() []HostInfo {
	w.mu.Lock()
	defer w.mu.Unlock()

	list := make([]HostInfo, 0, len(w.hosts))

	for i, h := range w.hosts {
		info := HostInfo{
			Name: h.Name, Online: !h.Offline, VCPU: h.VCPU, Memory: int64(h.MemoryMiB) * MiB, Used: 2 * GiB,
			Uptime: time.Since(w.born) + 24*time.Hour, Address: h.Address, Bridges: slices.Clone(h.Bridges), Order: i + 1,
			ClockSkew: h.ClockSkew, MTU: maps.Clone(h.MTU),
		}

		for _, v := range w.vms {
			if v.host == h.Name && v.run != nil {
				info.Used += int64(memoryMiB(v.conf)) * MiB
			}
		}

		list = append(list, info)
	}

	return list
}

// StorageInfo is a storage as one host sees it.
type StorageInfo struct {
	Name, Type, Content, Path string
	Host                      string
	Shared                    bool
	Enabled, Active           bool
	// Total and Used are zero unless the storage is active.
	Total, Used int64
}

func (w *World) storageInfo(host string, s *Storage) StorageInfo {
	info := StorageInfo{
		Name: s.Name, Type: s.Type, Content: s.contentList(), Path: s.Path(), Host: host, Shared: s.Shared,
		Enabled: !s.Disabled,
	}

	if info.Active = info.Enabled && s.activate(host) == nil; !info.Active {
		return info
	}

	if info.Total = int64(s.SizeGiB) * GiB; info.Total == 0 {
		info.Total = 500 * GiB
	}

	for _, v := range w.volumesOn(host, s) {
		info.Used += v.bytes()
	}

	if info.Used = min(info.Used, info.Total); w.full[s.Name] {
		info.Used = info.Total
	}

	return info
}

// Storages returns what a caller may see of the storages, on one host or, when none is named, on all.
func (w *World) Storages(c Caller, host string) []StorageInfo {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []StorageInfo

	for _, s := range w.storages {
		path := "/storage/" + s.Name
		if !w.allowed(c.ID, path, "Datastore.Audit") && !w.allowed(c.ID, path, "Datastore.AllocateSpace") {
			continue
		}

		for _, h := range s.hosts {
			if host == "" || h == host {
				list = append(list, w.storageInfo(h, s))
			}
		}
	}

	return list
}

// Storage returns a storage as a host sees it, whether it can be used or not.
func (w *World) Storage(host, name string) (StorageInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, s := range w.storages {
		if s.Name == name && slices.Contains(s.hosts, host) {
			return w.storageInfo(host, s), nil
		}
	}

	_, err := w.storage(host, name)

	return StorageInfo{}, err
}

// StorageConfig returns a storage as the cluster configures it.
func (w *World) StorageConfig(name string) (StorageInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, s := range w.storages {
		if s.Name == name {
			return w.storageInfo(s.hosts[0], s), nil
		}
	}

	return StorageInfo{}, failf("storage '%s' does not exist", name)
}

// VolumeInfo is one entry of a storage's content.
type VolumeInfo struct {
	ID, Format, Kind, Path string
	Size                   int64
	VMID                   int
	Parent                 string
	Created                time.Time
}

func (v *volume) info() VolumeInfo {
	return VolumeInfo{
		ID: v.id, Format: v.format, Kind: v.kind, Path: v.path(), Size: v.bytes(), VMID: v.owner, Parent: v.parent,
		Created: v.created,
	}
}

// Volumes lists what a caller may see of a storage's content, of one kind and one VM when they are given.
func (w *World) Volumes(c Caller, host, storage, kind string, vmid int) ([]VolumeInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	s, err := w.storage(host, storage)
	if err == nil {
		err = s.activate(host)
	}

	if err != nil {
		return nil, err
	}

	list := []VolumeInfo{}

	for _, v := range w.volumesOn(host, s) {
		if (kind == "" || v.kind == kind) && (vmid == 0 || v.owner == vmid) && w.mayRead(c, v) == nil {
			list = append(list, v.info())
		}
	}

	return list, nil
}

// Volume returns one volume of a storage.
func (w *World) Volume(c Caller, host, storage, id string) (VolumeInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.volume(host, fullID(storage, id))

	switch owner := ownerInName.FindStringSubmatch(id); {
	case err == nil:
		err = w.mayRead(c, v)
	case owner != nil:
		// Who may see it is asked before whether it is there.
		vmid, _ := strconv.Atoi(owner[1]) // digits, by the pattern
		if denied := w.mayRead(c, &volume{storage: &Storage{Name: storage}, kind: "images", owner: vmid}); denied != nil {
			err = denied
		}
	}

	if err != nil {
		return VolumeInfo{}, err
	}

	return v.info(), nil
}

// ownerInName is the VM that the name of a disk says it belongs to.
var ownerInName = regexp.MustCompile(`\b(?:vm|base)-(\d+)-`)

// mayRead asks for the right to look at a volume (pve-storage: check_volume_access).
func (w *World) mayRead(c Caller, v *volume) error {
	storage := "/storage/" + v.storage.Name
	if w.allowed(c.ID, storage, "Datastore.Allocate") {
		return nil
	}

	switch v.kind {
	case "iso", "vztmpl", "import":
		return w.needAny(c, storage, "Datastore.AllocateSpace", "Datastore.Audit")
	case "images":
		if err := w.need(c, storage, "Datastore.Audit"); err != nil {
			return err
		}

		return w.need(c, fmt.Sprintf("/vms/%d", v.owner), "VM.Config.Disk")
	default:
		return failf("missing privileges to access %s", v.id)
	}
}

// fullID accepts a volume's name instead of its id, as Proxmox VE does.
func fullID(storage, id string) string {
	if len(id) > len(storage) && id[:len(storage)+1] == storage+":" {
		return id
	}

	return storage + ":" + id
}

// DeleteVolume removes a volume and returns the task.
func (w *World) DeleteVolume(c Caller, host, storage, id string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.volume(host, fullID(storage, id))

	var gone *missingFile
	if err != nil && !errors.As(err, &gone) {
		return "", err
	}

	if err := w.need(c, "/storage/"+storage, "Datastore.Allocate"); err != nil {
		return "", err
	}

	if gone != nil {
		return w.start(c, job{node: host, kind: "imgdel", id: storage, work: func(t *task) error {
			t.log("disk image '%s' does not exist", gone.path)

			return nil
		}}), nil
	}

	name := storage
	if v.owner != 0 {
		name = strconv.Itoa(v.owner) + "@" + storage
	}

	return w.start(c, job{node: host, kind: "imgdel", id: name, work: func(t *task) error {
		if _, err := w.timeline.Wait(t.ctx, "free", host+" "+v.id, w.latencies.Free); err != nil {
			return err
		}

		w.mu.Lock()
		defer w.mu.Unlock()

		if len(w.children(v)) > 0 {
			return failf("base volume '%s' is still in use by linked clones", v.id)
		}

		// It goes by the name, whatever has it by now.
		if current, err := w.volume(host, v.id); err == nil {
			w.free(current)
		}

		return nil
	}}), nil
}
