package talos

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/lab/timeline"
)

// etcdCluster is what the members of one etcd cluster agree on: who they are, who leads, and what they store. It stands
// for the replicated log; a member's right to it is on its disk, so whoever loses the disk loses the membership.
type etcdCluster struct {
	id   uint64
	ca   string // fingerprint of the CA: members with another cannot speak to each other
	kube *kube.Cluster

	mu      sync.Mutex
	members []*etcdMember // in the order in which they joined
	leader  uint64
	term    uint64
	index   uint64
	up      *timeline.Span        // when etcd first answered
	api     *timeline.Span        // when the first API server did
	servers map[*node]string      // the API servers that run, with their addresses
	holders map[netip.Addr]uint64 // of shared addresses
}

// etcdMember is one member as the cluster knows it.
type etcdMember struct {
	id      uint64
	name    string
	address netip.Addr
	learner bool
	running bool
}

// membership is a member's own data, on its disk.
type membership struct {
	cluster *etcdCluster
	id      uint64
}

var errNoLeader = errors.New("etcdserver: no leader")

func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails

	return binary.BigEndian.Uint64(b[:])>>1 | 1
}

// bootstrapEtcd makes a cluster with one member.
func bootstrapEtcd(ca, name string, address netip.Addr) *membership {
	c := &etcdCluster{id: randomID(), ca: ca, kube: kube.NewCluster(), term: 1, index: 1, servers: map[*node]string{}, holders: map[netip.Addr]uint64{}}

	return &membership{cluster: c, id: c.add(name, address)}
}

func (c *etcdCluster) add(name string, address netip.Addr) uint64 {
	id := randomID()
	c.members = append(c.members, &etcdMember{id: id, name: name, address: address})

	return id
}

// join adds a member; it needs the consent of a quorum.
func (c *etcdCluster) join(name string, address netip.Addr) (*membership, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.healthyLocked(); err != nil {
		return nil, err
	}

	// a member that comes back without its data, under its old address, takes the place of its former self: Talos removes
	// the stale member with the same peer URL before it adds the new one
	c.members = slices.DeleteFunc(c.members, func(m *etcdMember) bool { return m.address == address && !m.running })
	c.index++

	return &membership{cluster: c, id: c.add(name, address)}, nil
}

// setRunning notes that a member's process started or ended, and elects a leader.
func (c *etcdCluster) setRunning(id uint64, running bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	m := c.find(id)
	if m == nil {
		return errors.New("the member has been permanently removed from the cluster")
	}

	if running && m.running {
		return fmt.Errorf("member %x is running already: its disk was copied", id)
	}

	m.running = running
	c.elect()

	return nil
}

// leave removes a member from the cluster, itself included. etcd refuses when too few of those that stay run, and so the
// last one never leaves.
func (c *etcdCluster) leave(id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.healthyLocked(); err != nil {
		return err
	}

	running, others := 0, 0

	for _, m := range c.members {
		if m.id != id && !m.learner {
			others++

			if m.running {
				running++
			}
		}
	}

	if running < others/2+1 {
		return errors.New("etcdserver: re-configuration failed due to not enough started members")
	}

	c.members = slices.DeleteFunc(c.members, func(m *etcdMember) bool { return m.id == id })
	c.index++
	c.elect()

	return nil
}

func (c *etcdCluster) find(id uint64) *etcdMember {
	for _, m := range c.members {
		if m.id == id {
			return m
		}
	}

	return nil
}

// elect keeps the leader while it runs, and takes another when there is a quorum to choose one.
func (c *etcdCluster) elect() {
	running, voters := 0, 0

	for _, m := range c.members {
		if !m.learner {
			voters++
			if m.running {
				running++
			}
		}
	}

	if running <= voters/2 {
		c.leader = 0

		return
	}

	if m := c.find(c.leader); m != nil && m.running {
		return
	}

	for _, m := range c.members {
		if m.running && !m.learner {
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

// list returns copies of the members.
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

// spans returns when etcd and the API first answered.
func (c *etcdCluster) spans() (up, api *timeline.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.up, c.api
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
