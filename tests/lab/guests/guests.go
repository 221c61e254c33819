// Package guests boots the lab's systems as the guests of a Proxmox VE server that is not the lab's own: Proxmox' code
// makes the VMs, and starts a stand-in for QEMU that runs nothing and says when it starts, resets and stops.
//
// The stand-in calls an executable named "hook" in the folder of the guests, in the host's own file system, with EVENT, VMID and
// HOST ("started 401 pve"). What it was started with is QEMU's own command line, which tells the hardware.
package guests

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"talos-proxmox/tests/lab/machine"
)

// Options of the guests.
type Options struct {
	// Dir is the folder that the stand-ins for QEMU have in common with this process: the hook is written there, and the
	// files of guests are in "<vmid>.root" below it.
	Dir string
	// Firmware boots what is on the disks.
	Firmware machine.Firmware
	// Files are those that clients read and write through a guest's agent, which is a part of the stand-in: they are
	// kept the same there and in the guest.
	Files []string
	// Log receives what goes wrong, a line at a time.
	Log func(line string)
}

// Guests are those that run.
type Guests struct {
	opts    Options
	volumes volumes
	events  *os.File
	done    chan struct{} // closed when no event comes any more
	mu      sync.Mutex
	powered map[int]*guest // by VMID
}

// guest is one VM that is on.
type guest struct {
	host string
	pid  int

	mu     sync.Mutex
	system machine.System
	off    bool
	sync   chan struct{} // closed when the files need not be kept the same any more
}

// The script tells who called it as well: in a host's own namespace of processes the number is the same.
const hook = `#!/bin/sh
printf '%s %s %s %s\n' "$1" "$2" "$3" "$PPID" > "$(dirname "$0")/events"
`

// Start listens to the stand-ins, until Close.
func Start(o Options) (*Guests, error) {
	path := filepath.Join(o.Dir, "events")

	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}

	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	// Open for writing as well: there is no end of file while no hook runs, and hooks never wait.
	events, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}

	if err := os.WriteFile(filepath.Join(o.Dir, "hook"), []byte(hook), 0o755); err != nil { //nolint:gosec // it is run
		return nil, err
	}

	g := &Guests{opts: o, events: events, done: make(chan struct{}), powered: map[int]*guest{}}

	go g.listen()

	return g, nil
}

// Close takes the hook away and cuts the power of all guests. Their stand-ins go on.
func (g *Guests) Close() error {
	err := os.Remove(filepath.Join(g.opts.Dir, "hook"))
	err = cmp.Or(err, g.events.Close())
	<-g.done

	g.mu.Lock()
	all := g.powered
	g.powered = nil
	g.mu.Unlock()

	for _, v := range all {
		v.cut()
	}

	return err
}

func (g *Guests) listen() {
	defer close(g.done)

	lines := bufio.NewScanner(g.events)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) != 4 {
			g.opts.Log("event " + strconv.Quote(lines.Text()))

			continue
		}

		vmid, _ := strconv.Atoi(words[1])
		pid, _ := strconv.Atoi(words[3])
		g.event(words[0], vmid, words[2], pid)
	}
}

func (g *Guests) event(event string, vmid int, host string, pid int) {
	g.mu.Lock()
	v := g.powered[vmid]

	switch event {
	case "started":
		created := &guest{host: host, pid: pid, sync: make(chan struct{})}
		g.powered[vmid] = created
		g.mu.Unlock()

		if v != nil {
			v.cut()
		}

		g.boot(vmid, created)

		return
	case "incoming":
		if v != nil { // it goes on there
			v.mu.Lock()
			v.host, v.pid = host, pid
			v.mu.Unlock()
		}
	case "stopped":
		if v != nil && v.host == host {
			delete(g.powered, vmid)
			g.mu.Unlock()
			v.cut()

			return
		}
	case "reset":
		if v != nil {
			g.mu.Unlock()
			g.boot(vmid, v)

			return
		}
	}

	g.mu.Unlock()
}

// boot powers the hardware on that the stand-in was started with, again where something runs in it.
func (g *Guests) boot(vmid int, v *guest) {
	v.mu.Lock()
	defer v.mu.Unlock()

	if v.off {
		return
	}

	if v.system != nil {
		v.system.Kill()
		v.system = nil
	}

	hw, err := g.hardware(v.host, v.pid)
	if err != nil {
		g.opts.Log(fmt.Sprintf("VM %d on %s does not boot: %v", vmid, v.host, err))

		return
	}

	hw.Reset = func() { g.boot(vmid, v) }
	hw.Poweroff = func() {
		// The stand-in ends as QEMU does, and says so.
		if err := syscall.Kill(v.pid, syscall.SIGTERM); err != nil {
			g.opts.Log(fmt.Sprintf("VM %d on %s does not go off: %v", vmid, v.host, err))
		}
	}

	first := v.system == nil
	v.system = g.opts.Firmware.PowerOn(hw)

	if first && len(g.opts.Files) > 0 {
		go g.share(vmid, v)
	}
}

// cut cuts the power.
func (v *guest) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()

	if v.off {
		return
	}

	v.off = true
	close(v.sync)

	if v.system != nil {
		v.system.Kill()
	}
}
