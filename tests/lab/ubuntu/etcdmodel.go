package ubuntu

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"talos-proxmox/tests/lab/etcdrules"
)

// etcdModel plays etcd, by the rules that are compared with the released one.
type etcdModel struct {
	id string // of the cluster

	mu      sync.Mutex
	members []etcdrules.Member
	last    uint64 // id of the newest
}

func newEtcdModel(id string) *etcdModel { return &etcdModel{id: id} }

// etcdVersion is that of the etcd in K3s: 1.34 has 3.6, which wants all voters to be there when one is added.
const etcdVersion = "3.6.5"

// add implements [datastore]. A member joins without a vote, and gets it once it runs (K3s: pkg/etcd/etcd.go, join,
// manageLearners).
func (e *etcdModel) add(_ context.Context, m member) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	address, err := netip.ParseAddr(m.address)
	if err != nil {
		return err
	}

	e.last++
	made := etcdrules.Member{ID: e.last, Name: m.name, Address: address}

	if len(e.members) > 0 {
		if !etcdrules.HasQuorum(e.members) {
			return errNoLeader
		}

		if slices.ContainsFunc(e.known(), m.sameNode) {
			return errDuplicate
		}

		if err := etcdrules.CheckAdd(e.members, address, etcdVersion); err != nil {
			return err
		}

		made.Learner = true
	}

	made.Started, made.Connected = true, true
	e.members = append(e.members, made)

	if err := etcdrules.CheckPromote(e.members, made.ID); err != nil {
		return err
	}

	e.members[len(e.members)-1].Learner = false

	return nil
}

// known are the members by what K3s names them. The caller holds the lock.
func (e *etcdModel) known() []member {
	var all []member
	for _, m := range e.members {
		all = append(all, member{name: m.Name, node: nodeOf(m.Name), address: m.Address.String()})
	}

	return all
}

// find is a member by its name, nil where there is none. The caller holds the lock.
func (e *etcdModel) find(name string) *etcdrules.Member {
	for i := range e.members {
		if e.members[i].Name == name {
			return &e.members[i]
		}
	}

	return nil
}

// start implements [datastore].
func (e *etcdModel) start(_ context.Context, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	m := e.find(name)
	if m == nil {
		return errRemoved
	}

	m.Connected = true

	return nil
}

// stop implements [datastore].
func (e *etcdModel) stop(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if m := e.find(name); m != nil {
		m.Connected = false
	}
}

// remove implements [datastore].
func (e *etcdModel) remove(name, address string) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if !etcdrules.HasQuorum(e.members) {
		return false, errNoLeader
	}

	m := e.find(name)
	if m == nil || m.Address.String() != address {
		return false, nil
	}

	id := m.ID
	if err := etcdrules.CheckRemove(e.members, id); err != nil {
		return false, err
	}

	e.members = slices.DeleteFunc(e.members, func(m etcdrules.Member) bool { return m.ID == id })

	return true, nil
}

// ended implements [datastore]: a member of the model never does.
func (e *etcdModel) ended(string) <-chan struct{} { return nil }

// answers implements [datastore].
func (e *etcdModel) answers(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	if m := e.find(name); m == nil || !m.Connected || !etcdrules.HasQuorum(e.members) {
		return errNoLeader
	}

	return nil
}

// voters implements [datastore].
func (e *etcdModel) voters() []member {
	e.mu.Lock()
	defer e.mu.Unlock()

	return e.known()
}

// snapshot implements [datastore].
func (e *etcdModel) snapshot(name string) ([]byte, error) {
	return []byte("etcd of " + e.id), e.answers(name)
}
