package faults

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"talos-proxmox/tests/lab/journal"
)

// The events: what comes over the installation just before a call, and lasts until the run has ended.
const (
	// TokenRevoked: the API token is not known any more; PrivilegeRevoked: it may not make VMs any more, or delete them.
	TokenRevoked     Effect = "token revoked"
	PrivilegeRevoked Effect = "privilege revoked"
	// Full datastores have no room.
	Full Effect = "datastore full"
	// NoQuorum: the files of the cluster of hosts cannot be written.
	NoQuorum Effect = "no quorum"
	// HostCrash: the host is gone with its VMs, and comes back when the run has ended.
	HostCrash Effect = "host crash"
	// BackupRuns and SnapshotTaken lock all VMs that are there for a while: the program waits for them.
	BackupRuns    Effect = "backup runs"
	SnapshotTaken Effect = "snapshot taken"
	// APIAway: the call is carried out and answered, and then nothing is answered any more.
	APIAway Effect = "API away"
	// Stale: what the cluster says of the VMs does not change any more.
	Stale Effect = "stale resources"
)

// undo takes an event back.
type undo func() error

// events bring them about.
var events = map[Effect]func(g *Harness) (undo, error){
	TokenRevoked: func(g *Harness) (undo, error) {
		restore := g.r.Lab.World().RevokeToken(g.r.Lab.Credentials().TokenID)

		return func() error { restore(); return nil }, nil
	},
	PrivilegeRevoked: func(g *Harness) (undo, error) {
		restore := g.r.Lab.World().RevokePrivilege(g.r.Lab.Credentials().TokenID, "VM.Allocate")

		return func() error { restore(); return nil }, nil
	},
	Full: func(g *Harness) (undo, error) {
		fill := func(full bool) {
			for _, s := range g.r.Lab.World().Storages(g.caller(), "") {
				g.r.Lab.World().Fill(s.Name, full)
			}
		}

		fill(true)

		return func() error { fill(false); return nil }, nil
	},
	NoQuorum: func(g *Harness) (undo, error) {
		g.r.Lab.World().LoseQuorum(true)

		return func() error { g.r.Lab.World().LoseQuorum(false); return nil }, nil
	},
	HostCrash: func(g *Harness) (undo, error) {
		err := g.eachHost(g.r.Lab.World().CutPower)

		return func() error { return g.eachHost(g.r.Lab.World().RestorePower) }, err
	},
	APIAway: func(g *Harness) (undo, error) {
		g.r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Proxmox, Call: everything, Kind: journal.Reset, Times: math.MaxInt,
		})

		return func() error { return nil }, nil // faults are cleared when the run has ended
	},
	BackupRuns:    func(g *Harness) (undo, error) { return g.lock("backup") },
	SnapshotTaken: func(g *Harness) (undo, error) { return g.lock("snapshot") },
	Stale: func(g *Harness) (undo, error) {
		w := g.r.Lab.World()
		err := g.eachHost(func(host string) error { return w.HangPvestatd(host, true) })

		return func() error {
			return g.eachHost(func(host string) error { return w.HangPvestatd(host, false) })
		}, err
	},
}

// Events are all of them, sorted.
func Events() []Effect { return slices.Sorted(maps.Keys(events)) }

func (g *Harness) eachHost(do func(host string) error) error {
	var errs []error
	for _, h := range g.r.Lab.World().Hosts() {
		errs = append(errs, do(h.Name))
	}

	return errors.Join(errs...)
}

// lock locks all VMs that are not locked yet.
func (g *Harness) lock(kind string) (undo, error) {
	w := g.r.Lab.World()

	var locked []int

	for _, vm := range w.Snapshot().VMs {
		if vm.Template || vm.Lock != "" {
			continue
		}

		if err := w.SetLock(vm.ID, kind); err != nil {
			return nil, fmt.Errorf("locking VM %d: %w", vm.ID, err)
		}

		locked = append(locked, vm.ID)
	}

	unlock := sync.OnceValue(func() error {
		for _, vm := range w.Snapshot().VMs {
			if slices.Contains(locked, vm.ID) && vm.Lock == kind {
				if err := w.SetLock(vm.ID, ""); err != nil {
					return err
				}
			}
		}

		return nil
	})
	timer := time.AfterFunc(stall, func() { _ = unlock() }) // the undoing has its error

	return func() error {
		timer.Stop()

		return unlock()
	}, nil
}
