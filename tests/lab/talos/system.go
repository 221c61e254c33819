package talos

import (
	"context"
	"fmt"
	"sync"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
)

// system is one power-on of a machine. Within it the operating system may restart any number of times: Talos reboots by
// kexec, which the hardware does not notice.
type system struct {
	fw     *Firmware
	hw     machine.Hardware
	ctx    context.Context //nolint:containedctx // ends with the power
	cut    context.CancelFunc
	done   chan struct{} // closed when nothing of the system is left
	acpi   chan struct{} // closed by Shutdown
	button func()        // closes acpi, once

	mu    sync.Mutex
	stage string // while no node runs
	node  *node  // the boot that is running, nil in between
}

func newSystem(fw *Firmware, hw machine.Hardware) *system {
	s := &system{fw: fw, hw: hw, done: make(chan struct{}), acpi: make(chan struct{}), stage: StageBooting}
	s.ctx, s.cut = context.WithCancel(context.Background())
	s.button = sync.OnceFunc(func() { close(s.acpi) })

	return s
}

// Shutdown implements [machine.System]. A machine in which nothing runs does not react, as a real one.
func (s *system) Shutdown(ctx context.Context) error {
	s.button()

	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill implements [machine.System].
func (s *system) Kill() {
	s.cut()
	<-s.done
}

// Agent implements [machine.System].
func (s *system) Agent() []machine.Interface {
	s.mu.Lock()
	n := s.node
	s.mu.Unlock()

	if n == nil {
		return nil
	}

	return n.agent()
}

// what follows a boot of the operating system.
type next int

const (
	powerOff   next = iota // the guest switches the machine off
	kexec                  // restart from the system disk
	hardReset              // restart through the firmware, which goes by the boot order
	powerCut               // the machine was switched off under it
	standStill             // nothing runs any more, but the power is on
)

// run boots and boots again until the power goes.
func (s *system) run() {
	defer close(s.done)
	defer s.fw.forget(s)
	defer s.cut()

	last := s.hw.After
	from := s.bootDevice()

	for {
		if from == nil {
			s.setStage(StageNoBoot)
			<-s.ctx.Done()

			return
		}

		then, span := s.boot(from, last)
		last = span

		switch then {
		case powerCut:
			return
		case standStill:
			s.setStage(StageHalted)
			<-s.ctx.Done()

			return
		case powerOff:
			if s.hw.Poweroff != nil && s.ctx.Err() == nil {
				select {
				case <-s.acpi: // who asked knows
				default:
					go s.hw.Poweroff() // it may call Kill, which waits for this function
				}
			}

			return
		case hardReset:
			if s.hw.Reset != nil {
				go s.hw.Reset() // as above

				<-s.ctx.Done()

				return
			}

			from = s.bootDevice()
		case kexec:
			from = s.systemDisk()
		}
	}
}

// boot runs one node from power or kexec to its end.
func (s *system) boot(from *bootSource, after *timeline.Span) (next, *timeline.Span) {
	n := newNode(s, from)

	s.mu.Lock()
	s.node = n
	s.mu.Unlock()

	then, span := n.run(after)
	n.close()

	s.mu.Lock()
	s.node, s.stage = nil, StageBooting
	s.mu.Unlock()

	if s.ctx.Err() != nil {
		then = powerCut
	}

	return then, span
}

func (s *system) setStage(stage string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = stage
}

// log writes a line on the machine's console.
func (s *system) log(format string, args ...any) {
	s.fw.opts.Log(s.hw.Name, fmt.Sprintf(format, args...))
}

func (s *system) status() Status {
	s.mu.Lock()
	n := s.node
	st := Status{Name: s.hw.Name, VMID: s.hw.VMID, Stage: s.stage}
	s.mu.Unlock()

	if len(s.hw.NICs) > 0 {
		st.MAC = s.hw.NICs[0].MAC
	}

	if n != nil {
		n.describe(&st)
	}

	return st
}

// bootSource is what a machine boots: the system disk, or a medium that runs from memory.
type bootSource struct {
	image Image
	disk  *machine.Disk // nil for a medium
}

// bootDevice finds the first entry of the boot order with something to boot on it.
func (s *system) bootDevice() *bootSource {
	for _, d := range s.hw.Boot {
		content := d.Medium
		if d.Disk != nil {
			content = d.Disk.Content()
		}

		if f, ok := content.(*machine.File); ok {
			content = s.fw.recognise(f)
		}

		if i, ok := content.(*Image); ok && i.SecureBoot && !s.hw.UEFI {
			continue // a BIOS finds nothing on it
		}

		switch c := content.(type) {
		case *Installed:
			return &bootSource{image: c.Image.clone(), disk: d.Disk}
		case *Image:
			switch {
			case c.ISO:
				return &bootSource{image: c.clone()}
			case d.Disk != nil:
				d.Disk.Write(install(*c, nil))

				return &bootSource{image: c.clone(), disk: d.Disk}
			}
		}
	}

	return nil
}

// systemDisk finds the disk that Talos is installed on, nil when there is none.
func (s *system) systemDisk() *bootSource {
	for _, d := range s.hw.Disks {
		if c, ok := d.Content().(*Installed); ok {
			return &bootSource{image: c.Image.clone(), disk: d}
		}
	}

	return nil
}
