// Package etcdrules decides which changes of its members etcd takes, for every model of etcd in the lab. TestEtcd in
// tests/lab/talos compares it with the released etcd.
package etcdrules

import (
	"net/netip"

	"github.com/blang/semver/v4"
	"google.golang.org/grpc/codes"
)

// Member is one member as the others know it.
type Member struct {
	ID        uint64
	Name      string
	Address   netip.Addr
	Learner   bool
	Started   bool // it ran once
	Connected bool // it runs, and the others reach it
}

// Error is an error of etcd's own, with its code (etcd: api/v3rpc/rpctypes/error.go).
type Error struct {
	Code codes.Code
	Text string
}

func (e *Error) Error() string { return Prefix + e.Text }

// Is tells whether two are the same: real members have others later.
func (e *Error) Is(other error) bool {
	same, ok := other.(*Error) // errors.Is unwraps

	return ok && same.Text == e.Text
}

// Prefix begins every error of etcd's.
const Prefix = "etcdserver: "

// What etcd refuses changes with.
var (
	ErrNoLeader         = &Error{codes.Unavailable, "no leader"}
	ErrUnhealthy        = &Error{codes.Unavailable, "unhealthy cluster"}
	ErrMemberNotFound   = &Error{codes.NotFound, "member not found"}
	ErrNotEnoughStarted = &Error{codes.Unknown, "re-configuration failed due to not enough started members"}
	ErrPeerURLExists    = &Error{codes.FailedPrecondition, "Peer URLs already exists"}
	ErrTooManyLearners  = &Error{codes.FailedPrecondition, "too many learner members in cluster"}
	ErrLearnerNotReady  = &Error{
		codes.FailedPrecondition,
		"can only promote a learner member which is in sync with leader",
	}
)

// Votes counts the voters, and those among them that the others reach.
func Votes(members []Member) (voters, connected int) {
	for _, m := range members {
		if !m.Learner {
			voters++

			if m.Connected {
				connected++
			}
		}
	}

	return voters, connected
}

// HasQuorum says whether enough voters reach each other to have a leader.
func HasQuorum(members []Member) bool {
	voters, connected := Votes(members)

	return connected > voters/2
}

// CheckAdd says why etcd adds no learner at an address (etcd: etcdserver/server.go, mayAddMember): all voters have to be
// connected; since etcd 3.7, as many as the quorum will be with the new member. The version is that of the leader.
func CheckAdd(members []Member, address netip.Addr, version string) error {
	if !HasQuorum(members) {
		return ErrNoLeader
	}

	voters, connected := Votes(members)

	needed := voters
	if atLeast(version, "3.7.0") && voters > 1 {
		needed = (voters+1)/2 + 1
	}

	if connected < needed {
		return ErrUnhealthy
	}

	for _, m := range members {
		switch {
		case m.Address == address:
			return ErrPeerURLExists
		case m.Learner:
			return ErrTooManyLearners
		}
	}

	return nil
}

// CheckPromote says why etcd gives a learner no vote.
func CheckPromote(members []Member, id uint64) error {
	if !HasQuorum(members) {
		return ErrNoLeader
	}

	switch m, ok := find(members, id); {
	case !ok:
		return ErrMemberNotFound
	case m.Learner && !m.Connected:
		return ErrLearnerNotReady
	default:
		return nil
	}
}

// CheckRemove says why etcd does not remove a member, to protect its quorum (etcd: etcdserver/server.go,
// mayRemoveMember).
func CheckRemove(members []Member, id uint64) error {
	if !HasQuorum(members) {
		return ErrNoLeader
	}

	m, ok := find(members, id)

	switch {
	case !ok:
		return ErrMemberNotFound
	case m.Learner:
		return nil
	}

	others, started := 0, 0

	for _, other := range members {
		if other.ID != id && !other.Learner {
			others++

			if other.Started {
				started++
			}
		}
	}

	if started < others/2+1 {
		return ErrNotEnoughStarted
	}

	if !m.Connected {
		return nil // it is not part of the quorum anyway
	}

	if voters, connected := Votes(members); connected-1 < 1+(voters-1)/2 {
		return ErrUnhealthy
	}

	return nil
}

func find(members []Member, id uint64) (Member, bool) {
	for _, m := range members {
		if m.ID == id {
			return m, true
		}
	}

	return Member{}, false
}

// atLeast compares versions, with a leading v or without. What is none is the oldest.
func atLeast(version, least string) bool {
	v, err := semver.ParseTolerant(version)

	return err == nil && v.GE(semver.MustParse(least))
}
