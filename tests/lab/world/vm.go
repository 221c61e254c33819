package world

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"time"

	"talos-proxmox/tests/lab/timeline"
)

// vm is one virtual machine, kept as Proxmox VE keeps it: a flat configuration, and what of it waits for the next power
// cycle.
type vm struct {
	id   int
	host string
	// conf is the present configuration; "lock" and "template" are in it.
	conf map[string]string
	// pending and remove are changes that the running machine has not taken.
	pending map[string]string
	remove  map[string]bool
	// devices are the host's PCI devices that the VM has, from the moment it is told to start.
	devices []PCIDevice
	// run is the machine while it is powered on.
	run *run
	// rebootRequested tells the clean-up after the VM has stopped to start it again.
	rebootRequested bool
	// span is the newest imposed time of this VM: what comes next comes after it.
	span *timeline.Span
	// busy is Proxmox VE's lock file: whoever works on the VM holds it.
	busy chan struct{}
}

func newVM(id int, host string, conf map[string]string) *vm {
	return &vm{
		id: id, host: host, conf: conf, pending: map[string]string{}, remove: map[string]bool{},
		busy: make(chan struct{}, 1),
	}
}

func (v *vm) subject() string {
	if name := v.conf["name"]; name != "" {
		return name
	}

	return fmt.Sprintf("VM %d", v.id)
}

func (v *vm) path() string { return fmt.Sprintf("/vms/%d", v.id) }

func (v *vm) template() bool { return v.conf["template"] == "1" }

// effective is the configuration with what is pending applied.
func (v *vm) effective() map[string]string {
	conf := maps.Clone(v.conf)

	for key := range v.remove {
		delete(conf, key)
	}

	maps.Copy(conf, v.pending)

	return conf
}

// unlocked refuses to touch a VM that something else is working on.
func (v *vm) unlocked() error {
	if lock := v.conf["lock"]; lock != "" {
		return failf("VM is locked (%s)", lock)
	}

	return nil
}

// find returns a VM that is on the host, or the error of a missing configuration file.
func (w *World) find(host string, id int) (*vm, error) {
	if v, ok := w.vms[id]; ok && v.host == host {
		return v, nil
	}

	return nil, failf("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", host, id)
}

// findProcess is find for the calls that look at the machine's process first, which changes the wording.
func (w *World) findProcess(host string, id int) (*vm, error) {
	if v, ok := w.vms[id]; ok && v.host == host {
		return v, nil
	}

	return nil, failf("unable to find configuration file for VM %d on node '%s'", id, host)
}

// lockWait is how long Proxmox VE waits for the lock file.
const lockWait = 10 * time.Second

// hold takes the VM's lock file and returns what gives it back. The world must not be locked.
func (w *World) hold(ctx context.Context, v *vm) (func(), error) { return w.holdFor(ctx, v, lockWait) }

// holdFor is hold for who waits another time.
func (w *World) holdFor(ctx context.Context, v *vm, longest time.Duration) (func(), error) {
	timer := time.NewTimer(longest)
	defer timer.Stop()

	select {
	case v.busy <- struct{}{}:
		return func() { <-v.busy }, nil
	case <-timer.C:
		return nil, failf("can't lock file '/var/lock/qemu-server/lock-%d.conf' - got timeout", v.id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// withVM runs work on a VM of the host that is free and not locked, with its lock file held. The VM is looked up when
// the task runs, because it may be gone by then.
func (t *task) withVM(host string, id int, work func(*vm) error) error {
	w := t.world

	v, err := w.check(host, id)
	if err != nil {
		return err
	}

	release, err := w.hold(t.ctx, v)
	if err != nil {
		return err
	}
	defer release()

	if _, err := w.check(host, id); err != nil {
		return err
	}

	return work(v)
}

func (w *World) check(host string, id int) (*vm, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.find(host, id)
	if err != nil {
		return nil, err
	}

	return v, v.unlocked()
}

// digest is the checksum of the configuration file.
func (v *vm) digest() string {
	h := sha1.New()

	for _, section := range []map[string]string{v.conf, v.pending} {
		for _, key := range sortedKeys(section) {
			fmt.Fprintf(h, "%s: %s\n", key, section[key])
		}
	}

	for _, key := range sortedKeys(v.remove) {
		fmt.Fprintf(h, "delete: %s\n", key)
	}

	return hex.EncodeToString(h.Sum(nil))
}

func intOf(conf map[string]string, key string, fallback int) int {
	n, err := strconv.Atoi(conf[key])
	if err != nil {
		return fallback
	}

	return n
}

// memoryMiB reads the memory, which newer versions keep as a property string.
func memoryMiB(conf map[string]string) int {
	p, ok := parseProperties(conf["memory"], "current")
	if !ok {
		return 512
	}

	return intOf(p, "current", 512)
}

// freeVMID refuses a VMID that is taken.
func (w *World) freeVMID(id int) error {
	if v, ok := w.vms[id]; ok {
		return failf("VM %d already exists on node '%s'", id, v.host)
	}

	return nil
}

// NextID returns the lowest free VMID, or the one asked for if it is free.
func (w *World) NextID(want int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if want != 0 {
		if _, taken := w.vms[want]; taken {
			return 0, Invalid("vmid", "VM %d already exists", want)
		}

		return want, nil
	}

	for id := 100; id < 1_000_000; id++ {
		if _, taken := w.vms[id]; !taken {
			return id, nil
		}
	}

	return 0, failf("unable to get any free VMID in range [100, 1000000]")
}

// SetLock puts a lock on a VM, as a backup would, or takes it off when it is empty.
func (w *World) SetLock(id int, lock string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, ok := w.vms[id]
	if !ok {
		return fmt.Errorf("no VM %d", id)
	}

	if lock == "" {
		delete(v.conf, "lock")
	} else {
		v.conf["lock"] = lock
	}

	return nil
}
