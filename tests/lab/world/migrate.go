package world

import (
	"strconv"
	"strings"
)

// MigrateRequest moves a VM to another host.
type MigrateRequest struct {
	Target string
	// Online keeps a running VM running.
	Online bool
	// WithLocalDisks copies disks that are on local storage.
	WithLocalDisks bool
	// TargetStorage is where copied disks go; empty: to the storage of the same name.
	TargetStorage string
}

// Migrate moves a VM to another host and returns the task.
func (w *World) Migrate(c Caller, host string, id int, r MigrateRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.host(host); err != nil {
		return "", err
	}

	if r.Target == host {
		return "", Invalid("target", "target is local node.")
	}

	if _, err := w.host(r.Target); err != nil {
		return "", failf("no such cluster node '%s'", r.Target)
	}

	v, err := w.find(host, id)
	if err != nil {
		return "", err
	}

	if err := v.unlocked(); err != nil {
		return "", err
	}

	if v.run != nil && !r.Online {
		return "", failf("can't migrate running VM without --online")
	}

	if w.managed(id) && !c.manager {
		// This task ends once high availability knows of the wish, which is before it is done.
		return w.start(c, job{node: host, kind: "hamigrate", id: strconv.Itoa(id), work: func(*task) error {
			_, err := w.Migrate(Caller{ID: superuser, manager: true}, host, id,
				MigrateRequest{Target: r.Target, Online: true, WithLocalDisks: true})

			return err
		}}), nil
	}

	if r.TargetStorage == "1" {
		r.TargetStorage = ""
	}

	if r.TargetStorage != "" {
		if _, err := w.imageStorage(r.Target, r.TargetStorage); err != nil {
			return "", err
		}
	}

	return w.startMigration(c, host, id, r), nil
}

// startMigration starts the task that moves a VM. The world is locked.
func (w *World) startMigration(c Caller, host string, id int, r MigrateRequest) string {
	return w.start(c, job{node: host, kind: "qmigrate", id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(host, id, func(v *vm) error {
			if err := w.lockFor(v, "migrate"); err != nil {
				return err
			}
			defer w.unlock(v)

			if err := t.pass("migrate", w.latencies.Migrate, v); err != nil {
				return err
			}

			w.mu.Lock()
			defer w.mu.Unlock()

			// What went wrong is in the log alone.
			if err := w.move(c, v, r); err != nil {
				t.lines = append(t.lines, "ERROR: migration aborted: "+err.Error())

				return failf("migration aborted")
			}

			return nil
		})
	}})
}

func (w *World) lockFor(v *vm, lock string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := v.unlocked(); err != nil {
		return err
	}

	v.conf["lock"] = lock

	return nil
}

func (w *World) unlock(v *vm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(v.conf, "lock")
}

func localCDROM(vol *volume) error {
	return failf("can't migrate local disk '%s': local cdrom image", vol.id)
}

// move takes the VM and its disks to the target. It looks at everything before it changes anything. The world is
// locked.
func (w *World) move(c Caller, v *vm, r MigrateRequest) error {
	type step struct {
		drive driveSpec
		vol   *volume
		to    *Storage
	}

	if err := w.stays(v, r.Target); err != nil {
		return err
	}

	var steps []step

	for _, key := range sortedKeys(v.pending) {
		d, err := parseDrive(key, v.pending[key])
		if !isDrive(key) || err != nil {
			continue
		}

		if vol, err := w.volume(v.host, d.file()); err == nil && !vol.storage.Shared && vol.kind != "images" {
			return localCDROM(vol)
		}
	}

	for _, key := range sortedKeys(v.conf) {
		if !isDrive(key) {
			continue
		}

		d, err := parseDrive(key, v.conf[key])
		if err != nil {
			return err
		}

		vol, err := w.volume(v.host, d.file())
		if err != nil || vol.storage.Shared {
			continue
		}

		if vol.kind != "images" {
			return localCDROM(vol)
		}

		name := vol.storage.Name
		if r.TargetStorage != "" {
			name = r.TargetStorage
		}

		s, err := w.imageStorage(r.Target, name)
		if err != nil {
			return err
		}

		if v.run != nil && !r.WithLocalDisks && !d.cloudInit() {
			return failf("can't live migrate attached local disks without with-local-disks option")
		}

		if err := w.need(c, "/storage/"+name, "Datastore.AllocateSpace"); err != nil {
			return err
		}

		steps = append(steps, step{d, vol, s})
	}

	for _, s := range steps {
		made := *s.vol
		made.storage, made.host = s.to, s.to.key(r.Target, "").host
		made.parent = ""

		name := s.vol.name()
		if i := strings.LastIndex(name, "/"); i >= 0 {
			name = name[i+1:]
		}
		name, _, _ = strings.Cut(name, ".")
		if !s.to.files() {
			made.format = "raw"
		}

		made.id = made.imageID(name)
		w.free(s.vol)
		w.volumes[made.key()] = &made

		s.drive.properties["file"] = made.id
		v.conf[s.drive.key] = s.drive.String()
	}

	v.host = r.Target

	return nil
}
