package world

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// State is the world at one moment as plain values, for a comparison of before and after. What changes by itself
// (uptimes, tasks, digests) is not in it.
type State struct {
	VMs      []VMState
	Volumes  []VolumeState
	Pools    []PoolInfo
	Mappings []Mapping
	// HA and SecurityGroups are what is configured in addition to the VMs and outlives them.
	HA             []HAResource
	HARules        []HARule
	SecurityGroups []SecurityGroup
}

// VMState is one VM of a State.
type VMState struct {
	ID       int
	Name     string
	Host     string
	Running  bool
	Template bool
	Lock     string
	Pool     string
	MACs     []string
	// Disks are "scsi0 tank:vm-401-disk-0 42949672960", by interface.
	Disks []string
	// Config is a checksum of the configuration without its digest.
	Config string
}

// VolumeState is one volume of a State.
type VolumeState struct {
	Host, ID, Kind string
	Size           int64
	VMID           int
}

// Snapshot returns the world as it is now.
func (w *World) Snapshot() State {
	w.mu.Lock()
	defer w.mu.Unlock()

	var s State

	for _, id := range sortedKeys(w.vms) {
		s.VMs = append(s.VMs, w.state(w.vms[id]))
	}

	for _, v := range w.volumes {
		s.Volumes = append(s.Volumes, VolumeState{Host: v.host, ID: v.id, Kind: v.kind, Size: v.bytes(), VMID: v.owner})
	}

	slices.SortFunc(s.Volumes, func(a, b VolumeState) int { return strings.Compare(a.ID+" "+a.Host, b.ID+" "+b.Host) })

	for _, id := range sortedKeys(w.pools) {
		s.Pools = append(s.Pools, w.pools[id].info(id))
	}

	for _, key := range sortedKeys(w.mappings) {
		s.Mappings = append(s.Mappings, w.mappings[key].export())
	}

	for _, id := range sortedKeys(w.ha) {
		s.HA = append(s.HA, *w.ha[id])
	}

	s.HARules = slices.Clone(w.rules)
	s.SecurityGroups, _ = w.securityGroups()

	return s
}

func (w *World) state(v *vm) VMState {
	conf := v.effective()

	s := VMState{
		ID: v.id, Name: conf["name"], Host: v.host, Running: v.run != nil, Template: v.template(), Lock: conf["lock"],
		Pool: w.poolOf(v.id),
	}

	for _, nic := range nics(conf) {
		s.MACs = append(s.MACs, nic.MAC)
	}

	h := sha256.New()

	for _, key := range sortedKeys(conf) {
		fmt.Fprintf(h, "%s: %s\n", key, conf[key])

		if !isDrive(key) {
			continue
		}

		d, err := parseDrive(key, conf[key])
		if err != nil || d.cdrom() && !d.cloudInit() {
			continue
		}

		if vol, err := w.volume(v.host, d.file()); err == nil {
			s.Disks = append(s.Disks, fmt.Sprintf("%s %s %d", key, vol.id, vol.bytes()))
		}
	}

	s.Config = hex.EncodeToString(h.Sum(nil)[:8])

	return s
}

// VM finds a VM of a State by its name; ok is false when there is none.
func (s State) VM(name string) (VMState, bool) {
	i := slices.IndexFunc(s.VMs, func(v VMState) bool { return v.Name == name })
	if i < 0 {
		return VMState{}, false
	}

	return s.VMs[i], true
}
