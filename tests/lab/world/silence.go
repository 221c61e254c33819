package world

import (
	"fmt"
	"slices"
	"time"
)

// What the cluster knows of the VMs of a host comes from the broadcasts of the host's pvestatd: their names, their
// power, their memory. When these end, the cluster repeats the last one, and 300 seconds later it has none: what is
// left then is what the files in /etc/pve say, which host a VM is on, its tags, its lock
// (PVE::API2::Cluster::resources, PVE::API2Tools::extract_vm_stats).

// SetOffline takes a host off the network, or back on. Its VMs keep running.
func (w *World) SetOffline(name string, offline bool) error {
	return w.change(name, func(h *Host) { h.Offline = offline })
}

// StopDaemons stops what answers on a host, or starts it again. To the cluster the host stays online.
func (w *World) StopDaemons(name string, stopped bool) error {
	return w.change(name, func(h *Host) { h.unresponsive = stopped })
}

// SetClock sets a host's clock: so far it is ahead.
func (w *World) SetClock(name string, ahead time.Duration) error {
	return w.change(name, func(h *Host) { h.ClockSkew = ahead })
}

// HangPvestatd keeps a host from saying anything new of its VMs, or lets it again. It answers as before.
func (w *World) HangPvestatd(name string, hung bool) error {
	return w.change(name, func(h *Host) {
		if h.said = nil; hung {
			h.said = w.broadcast(h)
		}

		h.heard = nil
	})
}

// Forget lets 300 seconds pass since the last broadcast of a host that has gone silent.
func (w *World) Forget(name string) error {
	silent := false

	err := w.change(name, func(h *Host) {
		if silent = h.said != nil; silent {
			h.said = map[int]VMInfo{}
		}
	})
	if err == nil && !silent {
		return fmt.Errorf("host %q is not silent", name)
	}

	return err
}

// CutPower takes the power from a host and from all that runs on it.
func (w *World) CutPower(name string) error {
	if err := w.SetOffline(name, true); err != nil {
		return err
	}

	w.mu.Lock()

	var running []*vm

	for _, v := range w.vms {
		if v.host == name {
			running = append(running, v)
		}
	}
	w.mu.Unlock()

	for _, v := range running {
		w.powerOff(v)
	}

	return nil
}

// RemoveConfig removes the configuration of a VM that is off from /etc/pve, which is possible on any host. Its volumes
// stay on its own.
func (w *World) RemoveConfig(host string, id int) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.find(host, id)
	if err != nil {
		return err
	}

	if v.run != nil {
		return fmt.Errorf("VM %d runs", id)
	}

	delete(w.vms, id)
	delete(w.ha, id)
	delete(w.firewalls, id)

	return nil
}

// change changes a host. One that does not answer does not broadcast either.
func (w *World) change(name string, change func(*Host)) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	i := slices.IndexFunc(w.hosts, func(h *Host) bool { return h.Name == name })
	if i < 0 {
		return fmt.Errorf("no host %q", name)
	}

	h := w.hosts[i]
	before := h.Offline || h.unresponsive

	change(h)

	switch now := h.Offline || h.unresponsive; {
	case now && h.said == nil:
		h.said = w.broadcast(h)
	case before && !now:
		h.said = nil
	}

	return nil
}

func (w *World) broadcast(h *Host) map[int]VMInfo {
	said := map[int]VMInfo{}

	for id, v := range w.vms {
		if v.host == h.Name {
			said[id] = w.info(v)
		}
	}

	return said
}

// lastSaid is the last broadcast of a host; nil: all that is so.
func (w *World) lastSaid(h *Host) map[int]VMInfo {
	if h.said != nil || w.every == 0 {
		return h.said
	}

	if h.heard == nil || time.Since(h.at) >= w.every {
		h.heard, h.at = w.broadcast(h), time.Now()
	}

	return h.heard
}

// Heard returns what the cluster knows of the VMs that a caller may see, by the last broadcasts of their hosts.
func (w *World) Heard(c Caller) []VMInfo {
	w.mu.Lock()
	defer w.mu.Unlock()

	said := map[string]map[int]VMInfo{}
	for _, h := range w.hosts {
		said[h.Name] = w.lastSaid(h)
	}

	var list []VMInfo

	for _, id := range sortedKeys(w.vms) {
		v := w.vms[id]
		if !w.allowed(c.ID, v.path(), "VM.Audit") {
			continue
		}

		now := w.info(v)

		if said := said[v.host]; said != nil {
			then, heard := said[id]
			// These are in files of the cluster.
			then.ID, then.Host, then.Tags, then.Lock, then.Pool, then.HAState = id, now.Host, now.Tags, now.Lock, now.Pool,
				now.HAState
			then.Unheard = !heard
			now = then
		}

		list = append(list, now)
	}

	return list
}
