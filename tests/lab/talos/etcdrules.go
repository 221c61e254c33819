package talos

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/blang/semver/v4"
)

// join adds a learner, as Talos does with a node whose data directory is empty (Talos: services/etcd.go, addMember;
// etcd: etcdserver/server.go, mayAddMember): a member of the same name is taken for its former self and removed, and
// all voters have to be there; since etcd 3.7, as many as the quorum will be with the new member.
func (c *etcdModel) join(name string, address netip.Addr) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.healthyLocked(); err != nil {
		return 0, err
	}

	for _, m := range slices.Clone(c.members) {
		if m.started && m.name == name {
			if err := c.removeLocked(m.id, name+" removes its former self"); err != nil {
				return 0, fmt.Errorf("error removing self from the member list: %w", err)
			}
		}
	}

	voters, connected := c.votes()

	needed := voters
	if atLeast(c.version, "3.7.0") && voters > 1 {
		needed = (voters+1)/2 + 1
	}

	if connected < needed {
		return 0, fmt.Errorf("error adding member: %w", errEtcdUnhealthy)
	}

	for _, m := range c.members {
		switch {
		case m.address == address:
			return 0, fmt.Errorf("error adding member: %w", errPeerURLExists)
		case m.learner:
			return 0, fmt.Errorf("error adding member: %w", errTooManyLearners)
		}
	}

	id := c.add(name, address, true)
	c.changed(name + " joins as a learner")

	return id, nil
}

// mayRemove is how etcd protects the quorum (etcd: etcdserver/server.go, mayRemoveMember).
func (c *etcdModel) mayRemove(m *modelMember) error {
	if m.learner {
		return nil
	}

	others, started := 0, 0

	for _, other := range c.members {
		if other != m && !other.learner {
			others++

			if other.started {
				started++
			}
		}
	}

	if started < others/2+1 {
		return errNotEnoughStarted
	}

	if !m.connected() {
		return nil // it is not part of the quorum anyway
	}

	if voters, connected := c.votes(); connected-1 < 1+(voters-1)/2 {
		return errEtcdUnhealthy
	}

	return nil
}

// atLeast compares versions, with a leading v or without. What is none is the oldest.
func atLeast(version, least string) bool {
	v, err := semver.ParseTolerant(version)

	return err == nil && v.GE(semver.MustParse(least))
}
