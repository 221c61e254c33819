package talos

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/lab/timeline"
)

// etcdCluster is what the members of one etcd cluster agree on: who they are, who leads, and what they store. It stands
// for the replicated log; a member's right to it is on its disk, so whoever loses the disk loses the membership.
type etcdCluster struct {
	id   uint64
	ca   string // fingerprint of the CA: members with another cannot speak to each other
	kube *kube.Cluster
	log  *quorumLog

	mu      sync.Mutex
	members []*etcdMember // in the order of their ids, as etcd lists them
	leader  uint64
	term    uint64
	index   uint64
	met     bool                  // there was a quorum once: what comes before is not recorded
	alarms  []uint64              // members that are out of space; an alarm outlives its member
	version string                // of the member that started last
	up      *timeline.Span        // when etcd first answered
	grown   *timeline.Span        // when the newest member got its vote
	api     *timeline.Span        // when the first API server did
	servers map[*node]string      // the API servers that run, with their addresses
	holders map[netip.Addr]uint64 // of shared addresses
}

// etcdMember is one member as the cluster knows it.
type etcdMember struct {
	id      uint64
	name    string // of its node
	address netip.Addr
	learner bool
	started bool          // it ran once: before, etcd does not know its name
	running bool          // its process runs
	cut     bool          // it runs, and the others do not reach it
	gone    chan struct{} // closed when the member is removed
}

// connected tells whether the others can reach the member.
func (m *etcdMember) connected() bool { return m.running && !m.cut }

// membership is a member's own data, on its disk.
type membership struct {
	cluster *etcdCluster
	id      uint64
}

// etcdError is an error of etcd's own, with its code (etcd: api/v3rpc/rpctypes/error.go). Talos wraps most of them, by
// which the code is lost.
type etcdError struct {
	code codes.Code
	text string
}

func (e *etcdError) Error() string { return "etcdserver: " + e.text }

var (
	errNoLeader         = &etcdError{codes.Unavailable, "no leader"}
	errEtcdUnhealthy    = &etcdError{codes.Unavailable, "unhealthy cluster"}
	errMemberNotFound   = &etcdError{codes.NotFound, "member not found"}
	errNotEnoughStarted = &etcdError{codes.Unknown, "re-configuration failed due to not enough started members"}
	errPeerURLExists    = &etcdError{codes.FailedPrecondition, "Peer URLs already exists"}
	errTooManyLearners  = &etcdError{codes.FailedPrecondition, "too many learner members in cluster"}
	errLearnerNotReady  = &etcdError{
		codes.FailedPrecondition,
		"can only promote a learner member which is in sync with leader",
	}
	errNotForLearners  = &etcdError{codes.FailedPrecondition, "rpc not supported for learner"}
	errBadTransferee   = &etcdError{codes.FailedPrecondition, "bad leader transferee"}
	errNoSpace         = &etcdError{codes.ResourceExhausted, "mvcc: database space exceeded"}
	errTransferTimeout = &etcdError{codes.Unavailable, "request timed out, leader transfer took too long"}
)

func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails

	return binary.BigEndian.Uint64(b[:])>>1 | 1
}

// newEtcd makes a cluster with one member, which stores what the Kubernetes objects are.
func newEtcd(log *quorumLog, ca string, stored *kube.Cluster, name string, address netip.Addr) *membership {
	c := &etcdCluster{
		id: randomID(), ca: ca, kube: stored, log: log, term: 1, index: 1, servers: map[*node]string{},
		holders: map[netip.Addr]uint64{},
	}

	return &membership{cluster: c, id: c.add(name, address, false)}
}

func (c *etcdCluster) add(name string, address netip.Addr, learner bool) uint64 {
	id := randomID()
	c.members = append(c.members, &etcdMember{
		id: id, name: name, address: address, learner: learner,
		gone: make(chan struct{}),
	})
	slices.SortFunc(c.members, func(a, b *etcdMember) int { return cmp.Compare(a.id, b.id) })

	return id
}

// start notes that a member's process runs, and returns what is closed when the member is removed.
func (c *etcdCluster) start(id uint64, version string, cut bool, cause string) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.version = version

	m := c.find(id)

	switch {
	case m == nil:
		return nil, errRemoved
	case m.running:
		return nil, fmt.Errorf("member %x is running already: its disk was copied", id)
	}

	m.running, m.started, m.cut = true, true, cut
	c.changed(cause)

	return m.gone, nil
}

// end notes that a member's process does not run any more.
func (c *etcdCluster) end(id uint64, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if m := c.find(id); m != nil && m.running {
		m.running = false
		c.changed(cause)
	}
}

// setCut cuts a member off from the others, or connects it again.
func (c *etcdCluster) setCut(id uint64, cut bool, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if m := c.find(id); m != nil && m.cut != cut {
		m.cut = cut
		c.changed(cause)
	}
}

// promote gives a learner its vote.
func (c *etcdCluster) promote(id uint64, cause string, span *timeline.Span) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.healthyLocked(); err != nil {
		return err
	}

	switch m := c.find(id); {
	case m == nil:
		return errMemberNotFound
	case m.learner && !m.connected():
		return errLearnerNotReady
	case m.learner:
		m.learner, c.grown = false, span
		c.changed(cause)
	}

	return nil
}

// remove takes a member out of the cluster, unless etcd refuses.
func (c *etcdCluster) remove(id uint64, cause string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.healthyLocked(); err != nil {
		return err
	}

	return c.removeLocked(id, cause)
}

func (c *etcdCluster) removeLocked(id uint64, cause string) error {
	m := c.find(id)
	if m == nil {
		return errMemberNotFound
	}

	if err := c.mayRemove(m); err != nil {
		return err
	}

	c.members = slices.DeleteFunc(c.members, func(m *etcdMember) bool { return m.id == id })
	close(m.gone)
	c.changed(cause)

	return nil
}

// forfeit moves the leadership from a member to another one, whose name it returns (Talos: internal/pkg/etcd/etcd.go,
// ForfeitLeadership): to the first on the list, whatever its state.
func (c *etcdCluster) forfeit(id uint64, cause string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.healthyLocked(); err != nil {
		return "", fmt.Errorf("failed to list etcd members: %w", err)
	}

	if len(c.members) == 1 {
		return "", errOnlyMember
	}

	if c.leader != id {
		return "", nil
	}

	i := slices.IndexFunc(c.members, func(m *etcdMember) bool { return m.id != id })
	to := c.members[i]

	return to.name, c.moveLeaderLocked(to.id, cause)
}

// moveLeader makes another member the leader, unless etcd refuses.
func (c *etcdCluster) moveLeader(to uint64, cause string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.moveLeaderLocked(to, cause)
}

func (c *etcdCluster) moveLeaderLocked(to uint64, cause string) error {
	switch m := c.find(to); {
	case m == nil, m.learner:
		return errBadTransferee
	case !m.connected():
		return errTransferTimeout
	default:
		c.leader, c.term = m.id, c.term+1
		c.changed(cause)

		return nil
	}
}

func (c *etcdCluster) find(id uint64) *etcdMember {
	for _, m := range c.members {
		if m.id == id {
			return m
		}
	}

	return nil
}

// votes counts the voters, and those among them that the others reach.
func (c *etcdCluster) votes() (voters, connected int) {
	for _, m := range c.members {
		if !m.learner {
			voters++
			if m.connected() {
				connected++
			}
		}
	}

	return voters, connected
}

// changed elects a leader, if one is needed and can be, and records how the votes stand now.
func (c *etcdCluster) changed(cause string) {
	c.index++
	c.elect()

	voters, connected := c.votes()
	if c.leader != 0 {
		c.met = true
	}

	if c.met {
		c.log.add(Quorum{Cluster: c.id, Cause: cause, Voters: voters, Healthy: connected})
	}
}

// elect keeps the leader while it is reached, and takes another when there is a quorum to choose one.
func (c *etcdCluster) elect() {
	if voters, connected := c.votes(); connected <= voters/2 {
		c.leader = 0

		return
	}

	if m := c.find(c.leader); m != nil && m.connected() {
		return
	}

	for _, m := range c.members {
		if m.connected() && !m.learner {
			c.leader, c.term = m.id, c.term+1

			return
		}
	}
}

// healthy tells why the cluster does not answer, nil when it does.
func (c *etcdCluster) healthy() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.healthyLocked()
}

func (c *etcdCluster) healthyLocked() error {
	if c.leader == 0 {
		return errNoLeader
	}

	return nil
}

// writable tells why the cluster takes no writes, nil when it does (etcd: etcdserver/apply.go, applierV3Capped).
func (c *etcdCluster) writable() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.alarms) > 0 {
		return errNoSpace
	}

	return nil
}

// answers tells why a member does not answer its own clients, nil when it does.
func (c *etcdCluster) answers(id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch m := c.find(id); {
	case m == nil:
		return errRemoved
	case m.cut || c.leader == 0:
		return errNoLeader
	case m.learner:
		return errNotForLearners
	default:
		return nil
	}
}

// list returns copies of the members, by id.
func (c *etcdCluster) list() []etcdMember {
	c.mu.Lock()
	defer c.mu.Unlock()

	out := make([]etcdMember, 0, len(c.members))
	for _, m := range c.members {
		out = append(out, *m)
	}

	return out
}

// has tells whether an id is that of a member.
func (c *etcdCluster) has(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.find(id) != nil
}

// spans returns when etcd and the API first answered, and when the cluster last grew.
func (c *etcdCluster) spans() (up, api, grown *timeline.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.up, c.api, c.grown
}

// setServer notes that an API server began to answer, or stopped.
func (c *etcdCluster) setServer(n *node, address string, port int, span *timeline.Span) {
	c.mu.Lock()

	if address == "" {
		delete(c.servers, n)
	} else {
		c.servers[n] = address
		if c.api == nil {
			c.api = span
		}
	}

	addresses := make([]string, 0, len(c.servers))
	for _, a := range c.servers {
		addresses = append(addresses, a)
	}

	healthy := c.healthyLocked() == nil
	c.mu.Unlock()

	if healthy {
		c.kube.SetAPIServers(addresses, int32(port))
	}
}

func (m *etcdMember) peerURL() string {
	return "https://" + net.JoinHostPort(m.address.String(), "2380")
}

func (m *etcdMember) clientURL() string {
	return "https://" + net.JoinHostPort(m.address.String(), "2379")
}
