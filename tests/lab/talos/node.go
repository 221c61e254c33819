package talos

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
)

// node is one boot of Talos, from the end of the firmware's work to the next reboot.
type node struct {
	sys   *system
	fw    *Firmware
	hw    machine.Hardware
	image Image
	disk  *machine.Disk // the system disk; nil while nothing is installed

	ctx     context.Context //nolint:containedctx // ends with the boot
	stop    context.CancelFunc
	work    sync.WaitGroup // everything the boot started
	bootID  string
	started time.Time

	state     state.State // the resources
	events    *eventLog
	services  *services
	commands  chan command         // what ends the boot
	applied   chan config.Provider // configuration accepted in maintenance mode
	kick      *signal              // something changed that others look at
	published *signal              // the resources were brought in line
	closing   chan struct{}        // closed when streams have to end

	// what was published and told; only the publishing goroutine looks at it
	last     map[string]shown
	members  memberList
	reported string

	storing    sync.Mutex // one change of the disk at a time
	installing sync.Mutex // one installer at a time
	netmu      sync.Mutex // one change of the network at a time

	mu       sync.Mutex
	stage    string
	meta     map[uint8]string
	links    []link
	held     map[netip.Addr]string // shared addresses, with their links
	hostname string
	domain   string
	cfg      config.Provider // the active configuration, nil in maintenance mode
	rollback *time.Timer     // of a configuration that is being tried
	identity *identity
	front    *front // the API of a configured node, once it is up
	newest   *timeline.Span
	kube     kubernetesState
	member   *membership // of etcd, nil while there is none
	etcd     *etcdProcess

	components map[string]component // of Kubernetes, on a control plane
	starting   chan struct{}
	why        string // the sequence that ends the boot
	cordoned   bool   // because it goes down
	up         bool   // it was all there once in this boot
	said       string // the newest line of those that are not to be repeated

	fetched map[string]inlineManifest // by their URL
}

// command ends a boot: a sequence of Talos' to announce, and what comes after it.
type command struct {
	sequence string
	actor    string
	before   func() error // done between the announcement and the end; an error ends the boot as well
	then     next
	drain    bool   // cordon the node and evict its pods first
	detail   string // for the record
}

func newNode(s *system, from *bootSource) *node {
	n := &node{
		sys: s, fw: s.fw, hw: s.hw, image: from.image, disk: from.disk,
		bootID: uuid.NewString(), started: time.Now(),
		state: newState(), events: newEventLog(), commands: make(chan command, 1), applied: make(chan config.Provider),
		kick: newSignal(), closing: make(chan struct{}), stage: StageBooting, last: map[string]shown{},
		members: memberList{last: map[string]shown{}}, components: map[string]component{}, published: newSignal(),
		starting: make(chan struct{}, 1),
	}
	n.ctx, n.stop = context.WithCancel(s.ctx)
	n.services = newServices(n)
	n.meta = n.image.META

	if i := n.installed(); i != nil {
		n.meta, n.member = i.META, i.etcd
	}

	return n
}

// run goes from power to the end of the boot.
func (n *node) run(after *timeline.Span) (next, *timeline.Span) {
	n.setNewest(after)

	if !n.wait("boot", n.fw.opts.Latencies.Boot) {
		return powerCut, n.span()
	}

	if _, halt := n.image.kernelArg("talos.halt_if_installed"); halt && n.disk == nil && n.sys.systemDisk() != nil {
		n.sys.log("Talos is already installed to disk but booted from another media and talos.halt_if_installed kernel " +
			"parameter is set. Please reboot from the disk.")

		return standStill, n.span()
	}

	if then, over := n.comeUp(); over {
		return then, n.span()
	}

	n.publishMachine()
	n.background(n.bringUpNetwork)
	n.background(n.publishForever)
	n.services.start("machined", "containerd", "udevd", "syslogd", "auditd")

	cfg := n.storedConfig()

	for cfg == nil || cfg.RawV1Alpha1() == nil {
		n.setStage(StageMaintenance)

		var then next
		if cfg, then = n.maintain(); cfg == nil {
			return then, n.span()
		}
	}

	if n.disk == nil {
		return n.installSystem(cfg), n.span()
	}

	n.keepConfig(cfg)
	n.publishDisks() // volumes are encrypted as the first configuration says

	return n.operate(cfg), n.span()
}

// operate runs a configured node until something ends the boot.
func (n *node) operate(cfg config.Provider) next {
	n.setStage(StageBooting)
	n.setConfig(cfg)
	n.announce("boot", "", machineapi.SequenceEvent_START)
	n.background(n.serveAPI)
	n.background(n.runServices)
	n.background(n.watchReturn)
	n.fw.history.note(n.name(), Booted, n.image.describe())

	return n.await()
}

// await waits for what ends a boot, and announces it.
func (n *node) await() next {
	var c command

	select {
	case <-n.ctx.Done():
		return powerCut
	case <-n.sys.acpi:
		c = command{sequence: "shutdown", then: powerOff}
	case c = <-n.commands:
	}

	return n.end(c)
}

// eventKinds are the sequences that are noted by their own names.
var eventKinds = map[string]EventKind{"reboot": Rebooted, "shutdown": WasShutDown, "reset": WasReset}

// end announces a sequence in the way of Talos, does what it has to do, and returns what comes next.
func (n *node) end(c command) next {
	up := n.config() != nil && n.allThere()

	n.mu.Lock()
	n.up = n.up || up // it may have come up just now
	n.why = c.sequence
	n.mu.Unlock()

	n.setStage(map[string]string{
		"reboot": StageRebooting, "shutdown": StageShuttingDown, "reset": StageResetting, "upgrade": StageUpgrading,
		"stageUpgrade": StageUpgrading,
	}[c.sequence])
	n.announce(c.sequence, c.actor, machineapi.SequenceEvent_START)

	if i := n.installed(); c.sequence == "reboot" && i != nil && i.fresh {
		n.fw.history.note(n.name(), Upgraded, n.image.describe()+" to "+i.Image.describe())
	} else if kind, ok := eventKinds[c.sequence]; ok {
		n.fw.history.note(n.name(), kind, c.detail)
	}

	if c.drain {
		n.drain(c.actor)
	}

	n.goesDown(c.sequence)

	if c.before != nil {
		if err := c.before(); err != nil {
			// what is fatal to a sequence ends in a reboot (Talos: internal/app/machined/main.go)
			n.sys.log("%s failed: %v", c.sequence, err)
			n.fatal(c, err)
			c.then = hardReset
		}
	}

	n.task("stopAllServices", c.actor)
	n.announce(c.sequence, c.actor, machineapi.SequenceEvent_STOP)

	// those that watch hear the last of it, and who asked for it gets his reply
	close(n.closing)

	n.mu.Lock()
	front := n.front
	n.mu.Unlock()

	if front != nil {
		front.drain()
	}

	return c.then
}

// ending is what ends the boot, for the record.
func (n *node) ending() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	switch {
	case n.why != "":
		return n.why
	case n.ctx.Err() != nil:
		return "power cut"
	default:
		return "left"
	}
}

// logOnce writes a line on the console, unless it is the same as the one before.
func (n *node) logOnce(line string) {
	n.mu.Lock()
	same := n.said == line
	n.said = line
	n.mu.Unlock()

	if !same {
		n.sys.log("%s", line)
	}
}

// do asks the node to end its boot with a command; only the first one counts.
func (n *node) do(c command) {
	select {
	case n.commands <- c:
	default:
	}
}

// background runs a part of the system until the boot ends.
func (n *node) background(f func(context.Context)) { n.work.Go(func() { f(n.ctx) }) }

// close ends the boot: afterwards nothing of it listens or runs.
func (n *node) close() {
	n.cancelRollback()
	n.goesDown("power cut")
	n.stop()
	n.work.Wait()
	n.leaveKubernetes()
	n.fw.discovery.withdraw(n)
}

// wait imposes a latency that nothing but the end of the boot can cut short.
func (n *node) wait(name string, d time.Duration, after ...*timeline.Span) bool {
	s, err := n.fw.opts.Timeline.Wait(n.ctx, name, n.hw.Name, d, append(after, n.span())...)
	if err == nil {
		n.setNewest(s)
	}

	return err == nil
}

func (n *node) span() *timeline.Span {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.newest
}

func (n *node) setNewest(s *timeline.Span) {
	n.mu.Lock()
	n.newest = s
	n.mu.Unlock()

	if s != nil && n.hw.Advance != nil {
		n.hw.Advance(s)
	}
}

func (n *node) setStage(stage string) {
	n.mu.Lock()
	n.stage = stage
	n.mu.Unlock()
	n.kick.notify()
}

// installed returns what is on the system disk, nil when there is none.
func (n *node) installed() *Installed {
	if n.disk == nil {
		return nil
	}

	i, _ := n.disk.Content().(*Installed)

	return i
}

// store changes the system disk.
func (n *node) store(change func(*Installed)) {
	n.storing.Lock()
	defer n.storing.Unlock()

	if i := n.installed(); i != nil {
		n.disk.Write(i.with(change))
	}
}

func (n *node) config() config.Provider {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.cfg
}

func (n *node) controlPlane() bool {
	cfg := n.config()

	return cfg != nil && cfg.Machine().Type().IsControlPlane()
}

// name is how the journal calls the node: as the VM is called, which is known from the start.
func (n *node) name() string { return n.hw.Name }

// address is the first of the node's own.
func (n *node) address() netip.Addr {
	for _, p := range n.ownAddresses() {
		return p.Addr()
	}

	return netip.Addr{}
}

func (n *node) describe(st *Status) {
	st.Version, st.Address = n.image.Version, n.address()

	cfg := n.config()
	if cfg != nil {
		st.Role = cfg.Machine().Type().String()
	}

	n.mu.Lock()
	st.Stage = n.stage
	st.Joined, st.NodeReady = n.kube.joined, n.kube.ready
	n.mu.Unlock()

	ready, unmet := n.readiness()
	st.Ready = cfg != nil && ready

	for _, c := range unmet {
		st.Unmet = append(st.Unmet, c.Name+": "+c.Reason)
	}
}
