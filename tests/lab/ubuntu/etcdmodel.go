package ubuntu

import (
	"context"
	"slices"
	"sync"
)

// etcdModel plays etcd: it counts votes.
type etcdModel struct {
	id string // of the cluster

	mu      sync.Mutex
	members []member
	up      map[string]bool // by name
}

func newEtcdModel(id string) *etcdModel { return &etcdModel{id: id, up: map[string]bool{}} }

// quorate says whether enough members are up. The caller holds the lock.
func (e *etcdModel) quorate(members []member) bool {
	up := 0

	for _, m := range members {
		if e.up[m.name] {
			up++
		}
	}

	return up >= len(members)/2+1
}

// add implements [datastore].
func (e *etcdModel) add(_ context.Context, m member) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	if len(e.members) > 0 && !e.quorate(e.members) {
		return errNoLeader
	}

	if slices.ContainsFunc(e.members, m.sameNode) {
		return errDuplicate
	}

	e.members = append(e.members, m)
	e.up[m.name] = true

	return nil
}

func (e *etcdModel) has(name string) bool {
	return slices.ContainsFunc(e.members, func(m member) bool { return m.name == name })
}

// start implements [datastore].
func (e *etcdModel) start(_ context.Context, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	if !e.has(name) {
		return errRemoved
	}

	e.up[name] = true

	return nil
}

// stop implements [datastore].
func (e *etcdModel) stop(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()

	delete(e.up, name)
}

// remove implements [datastore].
func (e *etcdModel) remove(name, address string) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if !e.quorate(e.members) {
		return false, errNoLeader
	}

	others := slices.DeleteFunc(slices.Clone(e.members),
		func(m member) bool { return m.name == name && m.address == address })

	if len(others) == len(e.members) {
		return false, nil
	}

	if !e.quorate(others) {
		return false, errTooFewStarted
	}

	e.members = others

	return true, nil
}

// ended implements [datastore]: a member of the model never does.
func (e *etcdModel) ended(string) <-chan struct{} { return nil }

// answers implements [datastore].
func (e *etcdModel) answers(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	if !e.quorate(e.members) || !e.has(name) || !e.up[name] {
		return errNoLeader
	}

	return nil
}

// voters implements [datastore].
func (e *etcdModel) voters() []member {
	e.mu.Lock()
	defer e.mu.Unlock()

	return slices.Clone(e.members)
}

// snapshot implements [datastore].
func (e *etcdModel) snapshot(name string) ([]byte, error) {
	return []byte("etcd of " + e.id), e.answers(name)
}
