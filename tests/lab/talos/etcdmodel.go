package talos

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/blang/semver/v4"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"talos-proxmox/tests/lab/etcdrules"
	"talos-proxmox/tests/lab/kube"
)

// etcdModel plays the members of a cluster. It stands for the replicated log; a member's right to it is on its disk, so
// whoever loses the disk loses the membership.
type etcdModel struct {
	id   uint64
	log  *quorumLog
	kube *kube.Cluster // what they store

	mu      sync.Mutex
	members []*modelMember // in the order of their ids, as etcd lists them
	leader  uint64
	term    uint64
	index   uint64
	met     bool   // there was a quorum once: what comes before is not recorded
	version string // of the member that started last
	// alarms outlive their members.
	alarms []*machineapi.EtcdMemberAlarm
}

// modelMember is a member that is played.
type modelMember struct {
	etcdMember

	damaged bool       // its log is
	exited  chan error // of the process that runs
}

// exit ends the process, if there is one.
func (m *modelMember) exit(err error) {
	select {
	case m.exited <- err:
	default:
	}
}

// newEtcd makes a cluster with one member, which stores what the Kubernetes objects are.
func newEtcd(log *quorumLog, stored *kube.Cluster, name string, address netip.Addr) (c *etcdModel, id uint64) {
	c = &etcdModel{id: randomID(), log: log, kube: stored, term: 1, index: 1}

	return c, c.add(name, address, false)
}

func (c *etcdModel) add(name string, address netip.Addr, learner bool) uint64 {
	id := randomID()
	c.members = append(c.members, &modelMember{
		etcdMember: etcdMember{id: id, name: name, address: address, learner: learner},
	})
	slices.SortFunc(c.members, func(a, b *modelMember) int { return cmp.Compare(a.id, b.id) })

	return id
}

// start implements [etcdMembers].
func (c *etcdModel) start(id uint64, version string, cut bool, cause string) (<-chan error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.version = version

	m := c.find(id)

	switch {
	case m == nil:
		return nil, errRemoved
	case m.damaged:
		return nil, errDamaged
	case m.running:
		return nil, fmt.Errorf("member %x is running already: its disk was copied", id)
	}

	m.running, m.started, m.cut, m.exited = true, true, cut, make(chan error, 1)
	c.changed(cause)

	return m.exited, nil
}

// end notes that a member's process does not run any more.
func (c *etcdModel) end(id uint64, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if m := c.find(id); m != nil && m.running {
		m.running = false
		c.changed(cause)
	}
}

// setCut cuts a member off from the others, or connects it again.
func (c *etcdModel) setCut(id uint64, cut bool, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if m := c.find(id); m != nil && m.cut != cut {
		m.cut = cut
		c.changed(cause)
	}
}

// promote gives a learner its vote.
func (c *etcdModel) promote(id uint64, cause string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := etcdrules.CheckPromote(c.ruled(), id); err != nil {
		return false, err
	}

	m := c.find(id)
	if m.learner {
		m.learner = false
		c.changed(cause)

		return true, nil
	}

	return false, nil
}

// remove takes a member out of the cluster, unless etcd refuses.
func (c *etcdModel) remove(id uint64, cause string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.removeLocked(id, cause)
}

func (c *etcdModel) removeLocked(id uint64, cause string) error {
	if err := etcdrules.CheckRemove(c.ruled(), id); err != nil {
		return err
	}

	m := c.find(id)
	c.members = slices.DeleteFunc(c.members, func(m *modelMember) bool { return m.id == id })
	m.exit(errRemoved)
	c.changed(cause)

	return nil
}

// forfeit moves the leadership from a member to another one, whose name it returns (Talos: internal/pkg/etcd/etcd.go,
// ForfeitLeadership): to the first on the list, whatever its state.
func (c *etcdModel) forfeit(id uint64, cause string) (string, error) {
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

	i := slices.IndexFunc(c.members, func(m *modelMember) bool { return m.id != id })
	to := c.members[i]

	return to.name, c.moveLeaderLocked(to.id, cause)
}

// moveLeader makes another member the leader, unless etcd refuses.
func (c *etcdModel) moveLeader(to uint64, cause string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.moveLeaderLocked(to, cause)
}

func (c *etcdModel) moveLeaderLocked(to uint64, cause string) error {
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

func (c *etcdModel) find(id uint64) *modelMember {
	for _, m := range c.members {
		if m.id == id {
			return m
		}
	}

	return nil
}

// changed elects a leader, if one is needed and can be, and records how the votes stand now.
func (c *etcdModel) changed(cause string) {
	c.index++
	c.elect()

	voters, connected := etcdrules.Votes(c.ruled())
	if c.leader != 0 {
		c.met = true
	}

	if c.met {
		c.log.add(Quorum{Cluster: c.id, Cause: cause, Voters: voters, Healthy: connected})
	}
}

// elect keeps the leader while it is reached, and takes another when there is a quorum to choose one.
func (c *etcdModel) elect() {
	if !etcdrules.HasQuorum(c.ruled()) {
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
func (c *etcdModel) healthy() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.healthyLocked()
}

func (c *etcdModel) healthyLocked() error {
	if c.leader == 0 {
		return errNoLeader
	}

	return nil
}

// writable tells why the cluster takes no writes, or none that only delete, nil when it does (etcd: server/etcdserver/
// apply, applierV3Corrupt, applierV3Capped).
func (c *etcdModel) writable(deletes bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	alarmed := func(alarm machineapi.EtcdMemberAlarm_AlarmType) bool {
		return slices.ContainsFunc(c.alarms, func(a *machineapi.EtcdMemberAlarm) bool { return a.GetAlarm() == alarm })
	}

	switch {
	case alarmed(machineapi.EtcdMemberAlarm_CORRUPT):
		return errCorrupt
	case alarmed(machineapi.EtcdMemberAlarm_NOSPACE) && !deletes:
		return errNoSpace
	default:
		return nil
	}
}

// answers tells why a member does not answer its own clients, nil when it does.
func (c *etcdModel) answers(id uint64) error {
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

// list implements [etcdMembers].
func (c *etcdModel) list() ([]etcdMember, error) { return c.known(), c.healthy() }

// known implements [etcdMembers].
func (c *etcdModel) known() []etcdMember {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.knownLocked()
}

func (c *etcdModel) knownLocked() []etcdMember {
	out := make([]etcdMember, 0, len(c.members))
	for _, m := range c.members {
		out = append(out, m.etcdMember)
	}

	return out
}

// snapshot implements [etcdMembers]: all store the same.
func (c *etcdModel) snapshot(uint64) ([]byte, error) {
	entries, revision, err := c.kube.Dump()
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	term := c.term
	c.mu.Unlock()

	return writeSnapshot(entries, revision, term)
}

// defragment has nothing to tidy up.
func (*etcdModel) defragment(uint64) error { return nil }

// wipe has nothing to delete.
func (*etcdModel) wipe(uint64) {}

// status is what a member says of itself.
func (c *etcdModel) status(id uint64) (*machineapi.EtcdMemberStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	st := &machineapi.EtcdMemberStatus{
		MemberId: id, ProtocolVersion: "3.6.7", StorageVersion: "3.6.0", DbSize: 4 << 20, DbSizeInUse: 2 << 20,
		Leader: c.leader, RaftIndex: c.index, RaftAppliedIndex: c.index, RaftTerm: c.term,
	}

	if v, err := semver.ParseTolerant(c.version); err == nil {
		st.ProtocolVersion, st.StorageVersion = v.String(), fmt.Sprintf("%d.%d.0", v.Major, v.Minor)
	}

	if own := c.find(id); own != nil {
		st.IsLearner = own.learner

		if own.cut {
			st.Leader = 0
		}
	}

	if st.GetLeader() == 0 {
		st.Errors = append(st.Errors, errNoLeader.Error())
	}

	for _, a := range c.alarms {
		st.Errors = append(st.Errors, fmt.Sprintf("memberID:%d alarm:%s ", a.GetMemberId(), a.GetAlarm()))
	}

	return st, nil
}

// alarm implements [etcdMembers].
func (c *etcdModel) alarm(id uint64) { c.raise(id, machineapi.EtcdMemberAlarm_NOSPACE) }

func (c *etcdModel) raise(id uint64, alarm machineapi.EtcdMemberAlarm_AlarmType) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !slices.ContainsFunc(c.alarms, func(a *machineapi.EtcdMemberAlarm) bool {
		return a.GetMemberId() == id && a.GetAlarm() == alarm
	}) {
		c.alarms = append(c.alarms, &machineapi.EtcdMemberAlarm{MemberId: id, Alarm: alarm})
	}
}

// kill implements [etcdMembers].
func (c *etcdModel) kill(id uint64, cause string) error {
	return c.killAs(id, cause, false)
}

// damageLog implements [etcdMembers].
func (c *etcdModel) damageLog(id uint64, cause string) error {
	return c.killAs(id, cause, true)
}

func (c *etcdModel) killAs(id uint64, cause string, damaged bool) error {
	c.end(id, cause)

	c.mu.Lock()
	defer c.mu.Unlock()

	m := c.find(id)
	if m == nil {
		return errMemberNotFound
	}

	m.damaged = m.damaged || damaged
	m.exit(errKilled)

	return nil
}

// damageStore implements [etcdMembers]: the others have most members on their side.
func (c *etcdModel) damageStore(id uint64, _ string) error {
	c.raise(id, machineapi.EtcdMemberAlarm_CORRUPT)

	return nil
}

// takeAlarms returns the alarms of all members, and ends them if they are to be disarmed.
func (c *etcdModel) takeAlarms(_ uint64, disarm bool) ([]*machineapi.EtcdMemberAlarm, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	out := slices.Clone(c.alarms)

	if disarm {
		c.alarms = nil
	}

	return out, nil
}
