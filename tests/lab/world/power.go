package world

import (
	"context"
	"errors"
	"strconv"
	"time"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
)

// run is one power-on of a VM, from the moment it runs to the moment it does not.
type run struct {
	pid     int
	started time.Time
	// agent tells whether this power-on has the guest agent's port.
	agent bool
	// system is set once ready is closed.
	system machine.System
	ready  chan struct{}
	// ending is set by whoever ends it first; ended is closed when it has.
	shuttingDown bool
	ended        chan struct{}
}

// Start powers a VM on and returns the task.
func (w *World) Start(c Caller, host string, id int) (string, error) {
	if upid, ok := w.throughHA(c, host, id, "hastart", "started"); ok {
		return upid, nil
	}

	return w.powerTask(c, host, id, "qmstart", false, func(t *task, v *vm) error { return w.powerOn(t, v) })
}

// Stop cuts a VM's power and returns the task.
func (w *World) Stop(c Caller, host string, id int) (string, error) {
	if upid, ok := w.throughHA(c, host, id, "hastop", "stopped"); ok {
		return upid, nil
	}

	return w.powerTask(c, host, id, "qmstop", false, func(t *task, v *vm) error {
		w.powerOff(v)

		return t.pass("stop", w.latencies.Stop, v)
	})
}

// ShutdownRequest asks the guest to stop.
type ShutdownRequest struct {
	// Timeout is how long the guest has; nil: a minute.
	Timeout *time.Duration
	// Force cuts the power when the guest has not stopped by then.
	Force bool
}

// Shutdown asks a VM to stop and returns the task.
func (w *World) Shutdown(c Caller, host string, id int, r ShutdownRequest) (string, error) {
	if upid, ok := w.throughHA(c, host, id, "hastop", "stopped"); ok {
		return upid, nil
	}

	return w.powerTask(c, host, id, "qmshutdown", false, func(t *task, v *vm) error { return w.shutdown(t, v, r) })
}

// Reboot shuts a VM down, and returns the task: it ends when the VM is off. The start follows as a task of its own, of
// root's, which who asked for the reboot does not hear of (qemu-server: vm_reboot, qmeventd, qm cleanup).
func (w *World) Reboot(c Caller, host string, id int, timeout *time.Duration) (string, error) {
	return w.powerTask(c, host, id, "qmreboot", true, func(t *task, v *vm) error {
		w.requestReboot(v, true)

		if err := w.shutdown(t, v, ShutdownRequest{Timeout: timeout}); err != nil {
			w.requestReboot(v, false)

			return err
		}

		w.wait.Add(1)

		go func() {
			defer w.wait.Done()

			w.cleanUp(v)
		}()

		return nil
	})
}

func (w *World) requestReboot(v *vm, requested bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v.rebootRequested = requested
}

const (
	// startGap is the time from the end of a reboot's task to the start: whoever looks at once finds the VM off.
	startGap = 2 * time.Second
	// cleanupLock and cleanupWait are how long the clean-up after a VM has stopped waits for its lock file, and then, with
	// the lock file held, for a VM that runs to stop (qemu-server: qm cleanup).
	cleanupLock, cleanupWait = time.Minute, 30 * time.Second
)

// cleanUp starts a VM that was shut down for a reboot, unless it was started or has gone meanwhile. One that was
// started meanwhile is taken for one that has not stopped yet: for a while nothing else may work on it.
func (w *World) cleanUp(v *vm) {
	if !sleep(w.ctx, startGap) {
		return
	}

	release, err := w.holdFor(w.ctx, v, cleanupLock)
	if err != nil {
		return
	}

	off := w.stops(v)

	release()

	w.mu.Lock()
	defer w.mu.Unlock()

	if !off || w.vms[v.id] != v || v.run != nil || !v.rebootRequested {
		return
	}

	id := v.id
	v.rebootRequested = false
	w.start(Caller{ID: superuser}, job{node: v.host, kind: "qmstart", id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(v.host, id, func(v *vm) error { return w.powerOn(t, v) })
	}})
}

// stops waits until a VM is off, as long as the clean-up waits for that.
func (w *World) stops(v *vm) bool {
	ctx, cancel := context.WithTimeout(w.ctx, cleanupWait)
	defer cancel()

	for {
		w.mu.Lock()
		off := v.run == nil
		w.mu.Unlock()

		if off {
			return true
		}

		if !sleep(ctx, 100*time.Millisecond) {
			return false
		}
	}
}

// sleep tells whether the time has gone by before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Reset restarts a VM as its reset button would, without what is pending.
func (w *World) Reset(c Caller, host string, id int) (string, error) {
	return w.powerTask(c, host, id, "qmreset", true, func(_ *task, v *vm) error {
		w.mu.Lock()
		r := v.run
		w.mu.Unlock()

		if r == nil {
			return failf("VM %d not running", v.id)
		}

		w.restart(v, r)

		return nil
	})
}

// powerTask starts a task that works on the power of a VM. The calls that need a running VM look before the task, the
// others leave it to the task to find the VM.
func (w *World) powerTask(c Caller, host string, id int, kind string, running bool,
	work func(*task, *vm) error,
) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.host(host); err != nil {
		return "", err
	}

	if running {
		v, err := w.findProcess(host, id)
		if err != nil {
			return "", err
		}

		if v.run == nil {
			return "", failf("VM %d not running", id)
		}
	}

	return w.start(c, job{node: host, kind: kind, id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(host, id, func(v *vm) error { return work(t, v) })
	}}), nil
}

// powerOn starts a VM. Its lock file is held.
func (w *World) powerOn(t *task, v *vm) error {
	if err := w.mayStart(t, v); err != nil {
		return err
	}

	w.requestReboot(v, false) // what is left of an earlier one (qemu-server: vm_start_nolock)

	boot, err := w.switchOn(t, v)
	if err != nil {
		w.mu.Lock()
		v.devices = nil
		w.mu.Unlock()

		return err
	}

	boot()

	return nil
}

// switchOn lets the time of a start go by and returns what boots the VM.
func (w *World) switchOn(t *task, v *vm) (func(), error) {
	if err := t.pass("start", w.latencies.Start, v); err != nil {
		return nil, err
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if w.closed {
		return nil, context.Canceled
	}

	if err := w.plug(t, v); err != nil {
		return nil, err
	}

	return w.newRun(v), nil
}

// newRun makes the VM a running one and returns what boots it, to be called with the world unlocked: firmware may call
// back at once.
func (w *World) newRun(v *vm) func() {
	w.counter++

	r := &run{
		pid: 100_000 + w.counter, started: time.Now(), agent: agentEnabled(v.conf),
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
	v.run = r

	hw := w.hardware(v)
	hw.Reset = func() { go w.restart(v, r) }
	hw.Poweroff = func() { go w.end(v, r) }
	hw.Advance = func(s *timeline.Span) {
		w.mu.Lock()
		defer w.mu.Unlock()
		v.span = s
	}

	return func() {
		r.system = w.firmware.PowerOn(hw)
		close(r.ready)
	}
}

// end cuts the power of one run, unless that has begun already, and returns when it is off.
func (w *World) end(v *vm, r *run) {
	w.mu.Lock()
	first := !r.shuttingDown
	r.shuttingDown = true
	w.mu.Unlock()

	if !first {
		<-r.ended

		return
	}

	<-r.ready
	r.system.Kill()

	w.mu.Lock()
	v.run, v.devices = nil, nil
	w.applyPending(v)
	w.enforce(v.id)
	w.mu.Unlock()

	close(r.ended)
}

// powerOff ends whatever runs in the VM, restarts that are under way included.
func (w *World) powerOff(v *vm) {
	for {
		w.mu.Lock()
		r := v.run
		w.mu.Unlock()

		if r == nil {
			return
		}

		w.end(v, r)
	}
}

// restart is a reset: the VM stays on, the guest starts again.
func (w *World) restart(v *vm, r *run) {
	w.mu.Lock()
	if r.shuttingDown || w.closed {
		w.mu.Unlock()

		return
	}
	r.shuttingDown = true
	w.mu.Unlock()

	<-r.ready
	r.system.Kill()

	w.mu.Lock()
	if w.closed {
		v.run = nil
		w.mu.Unlock()
		close(r.ended)

		return
	}
	boot := w.newRun(v)
	w.mu.Unlock()

	close(r.ended)
	boot()
}

const defaultShutdownTimeout = time.Minute

func (w *World) shutdown(t *task, v *vm, req ShutdownRequest) error {
	w.mu.Lock()
	r := v.run
	w.mu.Unlock()

	if r == nil {
		return nil
	}

	timeout := defaultShutdownTimeout
	if req.Timeout != nil {
		timeout = *req.Timeout
	}

	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()

	<-r.ready

	if err := r.system.Shutdown(ctx); err != nil {
		if t.ctx.Err() != nil {
			return t.ctx.Err()
		}

		if !req.Force {
			if errors.Is(err, context.DeadlineExceeded) {
				return failf("VM quit/powerdown failed - got timeout")
			}

			return failf("VM quit/powerdown failed")
		}

		t.log("VM still running - terminating now with SIGTERM")
	}

	w.powerOff(v)

	return t.pass("stop", w.latencies.Stop, v)
}

// noFirmware boots nothing: machines run, and go off when asked.
type noFirmware struct{}

type noSystem struct{}

func (noFirmware) PowerOn(machine.Hardware) machine.System { return noSystem{} }

func (noSystem) Shutdown(context.Context) error { return nil }
func (noSystem) Kill()                          {}
func (noSystem) Agent() []machine.Interface     { return nil }
