package world

import (
	"fmt"
	"strconv"
	"strings"
)

// DestroyRequest says what goes with a VM.
type DestroyRequest struct {
	// Unreferenced also deletes images on the storages that carry its number and are not in its configuration.
	Unreferenced bool
	// Purge takes it out of high availability; without it a VM that is in there stays.
	Purge bool
}

// Destroy deletes a VM with its disks and returns the task.
func (w *World) Destroy(c Caller, host string, id int, r DestroyRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.host(host); err != nil {
		return "", err
	}

	if _, err := w.destroyable(host, id, r); err != nil {
		return "", err
	}

	return w.start(c, job{node: host, kind: "qmdestroy", id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(host, id, func(v *vm) error {
			if err := t.pass("delete", w.latencies.Delete, v); err != nil {
				return err
			}

			w.mu.Lock()
			defer w.mu.Unlock()

			if _, err := w.destroyable(host, id, r); err != nil {
				return err
			}

			if err := w.baseUnused(v); err != nil {
				return err
			}

			delete(w.ha, v.id)
			w.leaveRules(v.id)
			delete(w.firewalls, v.id)

			if r.Unreferenced {
				w.forget(v)

				return nil
			}

			for _, vol := range w.owned(v) {
				w.free(vol)
			}

			for _, p := range w.pools {
				delete(p.vms, v.id)
			}

			delete(w.vms, v.id)

			return nil
		})
	}}), nil
}

func (w *World) destroyable(host string, id int, r DestroyRequest) (*vm, error) {
	v, err := w.find(host, id)
	if err != nil {
		return nil, err
	}

	if v.conf["protection"] == "1" {
		return nil, failf("can't remove VM %d - protection mode enabled", id)
	}

	if w.ha[id] != nil && !r.Purge {
		return nil, failf("unable to remove VM %d - used in HA resources and purge parameter not set.", id)
	}

	if v.run != nil {
		return nil, failf("VM %d is running - destroy failed", id)
	}

	return v, nil
}

// owned are the images that a VM's configuration names and that are its own.
func (w *World) owned(v *vm) []*volume {
	var list []*volume

	for _, conf := range []map[string]string{v.conf, v.pending} {
		for key, value := range conf {
			if !isDrive(key) {
				continue
			}

			d, err := parseDrive(key, value)
			if err != nil {
				continue
			}

			if vol, err := w.volume(v.host, d.file()); err == nil && vol.owner == v.id {
				list = append(list, vol)
			}
		}
	}

	return list
}

// baseUnused refuses to delete a template whose disks carry linked clones.
func (w *World) baseUnused(v *vm) error {
	for _, vol := range w.owned(v) {
		if len(w.children(vol)) > 0 {
			return failf("base volume '%s' is still in use by linked cloned", vol.id)
		}
	}

	return nil
}

// ConvertToTemplate makes a template of a VM and returns the task.
func (w *World) ConvertToTemplate(c Caller, host string, id int) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.host(host); err != nil {
		return "", err
	}

	if _, err := w.convertible(host, id); err != nil {
		return "", err
	}

	return w.start(c, job{node: host, kind: "qmtemplate", id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(host, id, func(v *vm) error {
			if err := t.pass("template", w.latencies.Template, v); err != nil {
				return err
			}

			w.mu.Lock()
			defer w.mu.Unlock()

			if _, err := w.convertible(host, id); err != nil {
				return err
			}

			v.conf["template"] = "1"

			for _, key := range sortedKeys(v.conf) {
				if !isDrive(key) || strings.HasPrefix(key, "unused") {
					continue
				}

				d, err := parseDrive(key, v.conf[key])
				if err != nil || d.cdrom() {
					continue
				}

				if vol, err := w.volume(host, d.file()); err == nil && vol.owner == v.id {
					w.makeBase(vol)
					d.properties["file"] = vol.id
					v.conf[key] = d.String()
				}
			}

			return nil
		})
	}}), nil
}

func (w *World) convertible(host string, id int) (*vm, error) {
	v, err := w.find(host, id)
	if err != nil {
		return nil, err
	}

	if err := v.unlocked(); err != nil {
		return nil, err
	}

	if v.template() {
		return nil, failf("you can't convert a template to a template")
	}

	if v.run != nil {
		return nil, failf("you can't convert a VM to template if VM is running")
	}

	return v, nil
}

// makeBase turns an image into a base image, which shows in its name.
func (w *World) makeBase(vol *volume) {
	w.rename(vol, strings.Replace(vol.id, fmt.Sprintf("vm-%d-", vol.owner), fmt.Sprintf("base-%d-", vol.owner), 1))
}
