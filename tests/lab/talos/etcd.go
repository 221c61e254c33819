package talos

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"

	"talos-proxmox/tests/lab/etcdrules"
	"talos-proxmox/tests/lab/timeline"
)

// etcdCluster is one cluster of etcd as the machines of the lab share it: its members, and what came of them.
type etcdCluster struct {
	etcdMembers

	ca   string // fingerprint of the CA: members with another cannot speak to each other
	kube clusterState

	mu      sync.Mutex
	up      *timeline.Span        // when etcd first answered
	grown   *timeline.Span        // when the newest member got its vote
	api     *timeline.Span        // when the first API server did
	servers map[*node]string      // the API servers that run, with their addresses
	holders map[netip.Addr]uint64 // of shared addresses
}

// etcdMembers are the members of a cluster, as the operating systems on their nodes run and ask them: the lab's model
// of them, or real ones.
type etcdMembers interface {
	// start runs a member's process, and returns what tells how it has ended by itself.
	start(id uint64, version string, cut bool, cause string) (<-chan error, error)
	// end ends a member's process.
	end(id uint64, cause string)
	// setCut cuts a member off from the others, or connects it again.
	setCut(id uint64, cut bool, cause string)
	// join adds a learner, as Talos does with a node whose data directory is empty.
	join(name string, address netip.Addr) (uint64, error)
	// promote gives a member its vote. It tells whether that was a learner.
	promote(id uint64, cause string) (bool, error)
	// remove takes a member out of the cluster, unless etcd refuses.
	remove(id uint64, cause string) error
	// forfeit moves the leadership from a member to another one, whose name it returns.
	forfeit(id uint64, cause string) (string, error)
	// healthy tells why the cluster does not answer, nil when it does.
	healthy() error
	// answers tells why a member does not answer its own clients, nil when it does.
	answers(id uint64) error
	// list returns copies of the members, by id, as etcd lists them.
	list() ([]etcdMember, error)
	// known are the members as the lab knows them, whether etcd answers or not.
	known() []etcdMember
	// status is what a member says of itself.
	status(id uint64) (*machineapi.EtcdMemberStatus, error)
	// alarm raises the alarm of a member that is out of space.
	alarm(id uint64)
	// kill stops a member, which starts again.
	kill(id uint64, cause string) error
	// damageLog stops a member, and damages its log so that it does not start again.
	damageLog(id uint64, cause string) error
	// damageStore stops a member, and has it start again with other data than the others have, which etcd finds out.
	damageStore(id uint64, cause string) error
	// takeAlarms returns the alarms of all members, asked of one, and ends them if they are to be disarmed.
	takeAlarms(id uint64, disarm bool) ([]*machineapi.EtcdMemberAlarm, error)
	// snapshot is one of what a member stores.
	snapshot(id uint64) ([]byte, error)
	// defragment tidies a member up.
	defragment(id uint64) error
	// wipe deletes the data of a member.
	wipe(id uint64)
}

// etcdMember is one member as the cluster knows it.
type etcdMember struct {
	id      uint64
	name    string // of its node
	address netip.Addr
	learner bool
	started bool // it ran once: before, etcd does not know its name
	running bool // its process runs
	cut     bool // it runs, and the others do not reach it
}

// connected tells whether the others can reach the member.
func (m *etcdMember) connected() bool { return m.running && !m.cut }

// membership is a member's own data, on its disk.
type membership struct {
	cluster *etcdCluster
	id      uint64
}

// etcdError is an error of etcd's own, with its code. Talos wraps most of them, by which the code is lost.
type etcdError = etcdrules.Error

var (
	errNoLeader        = etcdrules.ErrNoLeader
	errMemberNotFound  = etcdrules.ErrMemberNotFound
	errNotLearner      = &etcdError{Code: codes.FailedPrecondition, Text: "can only promote a learner member"}
	errNotForLearners  = &etcdError{Code: codes.FailedPrecondition, Text: "rpc not supported for learner"}
	errBadTransferee   = &etcdError{Code: codes.FailedPrecondition, Text: "bad leader transferee"}
	errNoSpace         = &etcdError{Code: codes.ResourceExhausted, Text: "mvcc: database space exceeded"}
	errCorrupt         = &etcdError{Code: codes.DataLoss, Text: "corrupt cluster"}
	errTransferTimeout = &etcdError{Code: codes.Unavailable, Text: "request timed out, leader transfer took too long"}
)

func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails

	return binary.BigEndian.Uint64(b[:])>>1 | 1
}

// newCluster is what the machines know of a cluster with one member.
func newCluster(members etcdMembers, ca string, stored clusterState) *etcdCluster {
	return &etcdCluster{
		etcdMembers: members, ca: ca, kube: stored, servers: map[*node]string{}, holders: map[netip.Addr]uint64{},
	}
}

// has tells whether an id is that of a member.
func (c *etcdCluster) has(id uint64) bool {
	for _, m := range c.known() {
		if m.id == id {
			return true
		}
	}

	return false
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

	c.mu.Unlock()

	if c.healthy() == nil {
		c.kube.SetAPIServers(addresses, int32(port))
	}
}

func (m *etcdMember) peerURL() string {
	return "https://" + net.JoinHostPort(m.address.String(), "2380")
}

func (m *etcdMember) clientURL() string {
	return "https://" + net.JoinHostPort(m.address.String(), "2379")
}
