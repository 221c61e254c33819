package ubuntu

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/upstream"
)

// Options are what the firmware needs of the world around it.
type Options struct {
	Journal   *journal.Journal
	Timeline  *timeline.Timeline
	Latencies timeline.Latencies
	// Lease is the DHCP server; nil: there is none.
	Lease func(machine.NIC) (netip.Prefix, bool)
	// Releases are the versions of K3s that there are; empty: any that looks like one.
	Releases []string
	// Upstream is etcd and the control plane of Kubernetes as they are released; servers run them with data below Dir.
	// Nil: the lab plays both.
	Upstream *upstream.Binary
	Dir      string
}

// Firmware boots Ubuntu. All machines of one world share one.
type Firmware struct {
	opts Options

	mu       sync.Mutex
	systems  map[int]*system // by VMID
	clusters []*cluster      // in the order in which they began
	behind   map[string]bool // the names of machines whose clocks are
}

// New returns a firmware for one world.
func New(o Options) *Firmware {
	if o.Lease == nil {
		o.Lease = func(machine.NIC) (netip.Prefix, bool) { return netip.Prefix{}, false }
	}

	return &Firmware{opts: o, systems: map[int]*system{}}
}

// magic is in the beginning of each image. Real ones have other text there.
const magic = "lab cloud image "

// Head is how the file of an image begins: "ubuntu 24.04".
func Head(system string) []byte { return []byte(magic + system + "\n") }

// Image is a disk with a system that has never booted, "ubuntu" in its version "24.04".
type Image struct{ ID, Version string }

// CloneContent implements [machine.Content].
func (i *Image) CloneContent() machine.Content {
	c := *i

	return &c
}

// installed is a disk of a system that has booted: what is on it stays.
type installed struct {
	Image

	// instance is what cloud-init knows the machine by: with another one it starts again.
	instance string
	files    *files
}

// CloneContent implements [machine.Content].
func (i *installed) CloneContent() machine.Content {
	return &installed{Image: i.Image, instance: i.instance, files: i.files.clone()}
}

// recognise tells which system is on a disk; nil: none that boots.
func recognise(content machine.Content) machine.Content {
	switch c := content.(type) {
	case *Image, *installed:
		return c
	case *machine.File:
		_, text, ok := bytes.Cut(c.Head, []byte(magic))
		line, _, _ := strings.Cut(string(text), "\n")

		if id, version, named := strings.Cut(line, " "); ok && named {
			return &Image{ID: id, Version: version}
		}
	}

	return nil
}

// PowerOn implements [machine.Firmware].
func (f *Firmware) PowerOn(hw machine.Hardware) machine.System {
	s := &system{fw: f, hw: hw, boot: uuid.NewString(), stage: StageBooting, units: map[string]bool{}, span: hw.After}
	s.ctx, s.stop = context.WithCancel(context.Background())

	f.mu.Lock()
	f.systems[hw.VMID] = s
	f.mu.Unlock()

	s.work.Go(s.run)

	return s
}

// The stages of a machine.
const (
	StageNoBoot  = "no bootable device"
	StageBooting = "booting"
	StageRunning = "running"
	StageJoined  = "joined"
)

// Status is what a table of nodes shows of one powered-on machine.
type Status struct {
	Name    string
	VMID    int
	MAC     string
	Address netip.Addr
	// System is what runs, "ubuntu 24.04"; Version is that of K3s, empty before it runs.
	System, Version string
	// Role is "controlplane" or "worker", empty before K3s runs.
	Role, Stage string
	NodeReady   bool
}

// Nodes returns the status of all machines that are powered on, by VMID.
func (f *Firmware) Nodes() []Status {
	f.mu.Lock()
	all := make([]*system, 0, len(f.systems))
	for _, s := range f.systems {
		all = append(all, s)
	}
	f.mu.Unlock()

	var out []Status
	for _, s := range all {
		out = append(out, s.status())
	}

	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.VMID, b.VMID) })

	return out
}

// system is one power-on of a machine.
type system struct {
	fw   *Firmware
	hw   machine.Hardware
	boot string // its own, of this power-on

	ctx  context.Context //nolint:containedctx // ends with the power
	stop context.CancelFunc
	work sync.WaitGroup

	k3s sync.Mutex // held while K3s is started

	mu      sync.Mutex
	disk    *machine.Disk
	on      *installed
	stage   string
	address netip.Prefix
	agent   bool // the guest agent runs
	service *service
	// starting is K3s while it comes up.
	starting *service
	units    map[string]bool // those that run, K3s aside
	span     *timeline.Span
}

func (s *system) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()

	st := Status{Name: s.hw.Name, VMID: s.hw.VMID, Stage: s.stage, Address: s.address.Addr()}
	if len(s.hw.NICs) > 0 {
		st.MAC = s.hw.NICs[0].MAC
	}

	if s.on != nil {
		st.System = s.on.ID + " " + s.on.Version
	}

	if k := s.service; k != nil {
		st.Version, st.Role = k.version, k.role
		if k.ready() {
			st.Stage, st.NodeReady = StageJoined, true
		}
	}

	return st
}

// run boots what is on the disk, and ends with the power.
func (s *system) run() {
	defer s.forget()

	if !s.find() {
		s.setStage(StageNoBoot)
		<-s.ctx.Done()

		return
	}

	if !s.impose("boot", s.fw.opts.Latencies.Boot) {
		return
	}

	s.disk.Write(s.on)
	s.setStage(StageRunning)

	if err := s.setUp(); err != nil && s.ctx.Err() == nil {
		s.fw.opts.Journal.Refused(journal.Guest, s.hw.Name, "cloud-init", err.Error())
		s.on.files.append(cloudInitLog, err.Error()+"\n")
	}

	<-s.ctx.Done()
}

// find takes the first disk of the boot order with a system on it.
func (s *system) find() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, d := range s.hw.Boot {
		if d.Disk == nil {
			continue
		}

		switch found := recognise(d.Disk.Content()).(type) {
		case *Image:
			s.disk, s.on = d.Disk, &installed{Image: *found, files: newFiles(*found)}

			return true
		case *installed:
			s.disk, s.on = d.Disk, found

			return true
		}
	}

	return false
}

func (s *system) setStage(stage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = stage
}

// impose lets time pass; false: the power went off meanwhile.
func (s *system) impose(name string, d time.Duration, after ...*timeline.Span) bool {
	s.mu.Lock()
	last := s.span
	s.mu.Unlock()

	span, err := s.fw.opts.Timeline.Wait(s.ctx, name, s.hw.Name, d, append(after, last)...)

	s.mu.Lock()
	s.span = span
	s.mu.Unlock()

	if s.hw.Advance != nil {
		s.hw.Advance(span)
	}

	return err == nil
}

func (s *system) forget() {
	s.fw.mu.Lock()
	defer s.fw.mu.Unlock()

	if s.fw.systems[s.hw.VMID] == s {
		delete(s.fw.systems, s.hw.VMID)
	}
}

// Shutdown implements [machine.System].
func (s *system) Shutdown(context.Context) error {
	s.Kill()

	return nil
}

// Kill implements [machine.System].
func (s *system) Kill() {
	s.stop()
	s.endService()
	s.work.Wait()
	s.endService() // one that came up meanwhile
}

// endService ends K3s, if it runs.
func (s *system) endService() {
	s.mu.Lock()
	running := s.service
	s.service = nil
	s.mu.Unlock()

	if running != nil {
		running.end()
	}
}

// Agent implements [machine.System].
func (s *system) Agent() []machine.Interface {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.agent || !s.hw.AgentDevice {
		return nil
	}

	own := machine.Interface{Name: "ens18", MAC: strings.ToLower(s.hw.NICs[0].MAC)}
	if s.address.IsValid() {
		// Clients take an answer only when it holds an address that is global, which one of loopback is not.
		own.Addresses = []netip.Prefix{s.address, global(s.address.Addr())}
	}

	return []machine.Interface{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}, own,
	}
}

// agentDisk is what the guest agent reads and writes, while it runs.
func (s *system) agentDisk() (*installed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.agent || !s.hw.AgentDevice {
		return nil, machine.ErrNoAgent
	}

	return s.on, nil
}

// WriteFile implements [machine.Files]: the guest agent writes files as root.
func (s *system) WriteFile(path, text string) error {
	on, err := s.agentDisk()
	if err != nil {
		return err
	}

	on.files.write(path, text)

	return s.changed(path)
}

// ReadFile implements [machine.Files]: the guest agent reads files as root.
func (s *system) ReadFile(path string) (string, error) {
	on, err := s.agentDisk()
	if err != nil {
		return "", err
	}

	text, there := on.files.read(path)
	if !there {
		return "", fmt.Errorf("failed to open file '%s' (mode: 'r'): No such file or directory", path)
	}

	return text, nil
}

// global is an address of a unique local network that goes with one of IPv4.
func global(a netip.Addr) netip.Prefix {
	four := a.As4()
	b := [16]byte{0xfd, 0x00, 0, 0x1a, 0xb0}
	copy(b[12:], four[:])

	return netip.PrefixFrom(netip.AddrFrom16(b), 64)
}
