package talos

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // it is how etcd makes the ids of members
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"

	"talos-proxmox/tests/lab/etcdrules"
	"talos-proxmox/tests/upstream"
)

// realEtcd is a cluster of real members. What concerns the members is asked of etcd; only which processes run, and
// which of them are paused, the lab knows by itself.
type realEtcd struct {
	binary *upstream.Binary
	dir    string
	id     uint64
	log    *quorumLog

	mu     sync.Mutex
	all    []*realMember // those that were removed stay: their data may be started again
	voters []uint64      // as a member listed them last
	met    bool          // there was a quorum once: what comes before is not recorded
}

// realMember is one member.
type realMember struct {
	etcdMember

	config  upstream.MemberConfig
	disk    sync.Mutex       // held while a process starts with its data, or something else changes them
	process *upstream.Member // nil while it does not run
	removed bool
	problem error // why it does not answer its clients, as it said last
}

// How long a call may take, one that is made to see whether a member is well, and how often the latter is made.
const (
	etcdCallTimeout  = 20 * time.Second
	etcdProbeTimeout = 3 * time.Second
	etcdProbe        = time.Second
	etcdRetry        = 250 * time.Millisecond
	etcdStartTimeout = time.Minute
)

// foundRealEtcd begins a cluster of real members on the node, with what a snapshot holds or with nothing.
func (n *node) foundRealEtcd(recover, skipHash bool) (*membership, error) {
	host, _ := n.fqdn()
	number := randomID()
	c := &realEtcd{
		binary: n.fw.opts.Upstream, dir: filepath.Join(n.fw.opts.Dir, fmt.Sprintf("etcd-%x", number)), id: number,
		log: n.fw.quorum,
	}
	m := c.add(bootstrapID(n.address()), host, n.address(), false)

	if recover {
		if err := n.restoreInto(m, c.binary, skipHash); err != nil {
			return nil, fmt.Errorf("error recovering from the snapshot: %w", err)
		}
	}

	stored, err := n.newRealKubernetes(recover)
	if err != nil {
		return nil, err
	}

	return &membership{cluster: newCluster(c, n.etcdCA(), stored), id: m.id}, nil
}

// bootstrapID is the id of the member that a cluster begins with (etcd: server/etcdserver/api/membership/member.go,
// computeMemberID).
func bootstrapID(address netip.Addr) uint64 {
	sum := sha1.Sum([]byte(upstream.PeerURL(address.String()) + "etcd-cluster")) //nolint:gosec // see above

	return binary.BigEndian.Uint64(sum[:8])
}

// restoreInto makes the data of a member of the snapshot that was uploaded, which is used up when it could be read.
func (n *node) restoreInto(m *realMember, binary *upstream.Binary, skipHash bool) error {
	i := n.installed()
	if i == nil || i.recovery == nil {
		return errors.New("stat /var/lib/etcd.snapshot: no such file or directory")
	}

	if err := os.MkdirAll(m.config.Dir, 0o700); err != nil {
		return err
	}

	file := filepath.Join(m.config.Dir, "etcd.snapshot")
	if err := os.WriteFile(file, i.recovery, 0o600); err != nil {
		return err
	}

	if _, err := binary.Run(n.ctx, "etcdutl", "snapshot", "restore", file, "--name="+m.name,
		"--data-dir="+m.config.Data(), "--skip-hash-check="+strconv.FormatBool(skipHash),
		"--initial-cluster="+m.name+"="+upstream.PeerURL(m.config.Address),
		"--initial-advertise-peer-urls="+upstream.PeerURL(m.config.Address)); err != nil {
		return err
	}

	n.store(func(i *Installed) { i.recovery = nil })

	return nil
}

func (c *realEtcd) add(id uint64, name string, address netip.Addr, learner bool) *realMember {
	m := &realMember{
		etcdMember: etcdMember{id: id, name: name, address: address, learner: learner},
		config: upstream.MemberConfig{
			Name: name, Dir: filepath.Join(c.dir, fmt.Sprintf("%x-%x", id, randomID())), Address: address.String(),
		},
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.all = append(c.all, m)

	return m
}

// find is the newest member with an id: one that is bootstrapped again at its address has the same.
func (c *realEtcd) find(id uint64) *realMember {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, m := range slices.Backward(c.all) {
		if m.id == id {
			return m
		}
	}

	return nil
}

// copyOf is a member that has not been removed, as it is now; false: there is none.
func (c *realEtcd) copyOf(id uint64) (etcdMember, bool) {
	for _, m := range c.known() {
		if m.id == id {
			return m, true
		}
	}

	return etcdMember{}, false
}

// running is a member's process, nil while it does not run.
func (c *realEtcd) running(id uint64) *upstream.Member {
	m := c.find(id)
	if m == nil {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	return m.process
}

// start implements [etcdMembers]. Members have the version of the binary.
func (c *realEtcd) start(id uint64, _ string, cut bool, cause string) (<-chan error, error) {
	m := c.find(id)
	if m == nil {
		return nil, errRemoved
	}

	m.disk.Lock()
	defer m.disk.Unlock()

	if c.running(id) != nil {
		return nil, fmt.Errorf("member %x is running already: its disk was copied", id)
	}

	ctx, cancel := context.WithTimeout(context.Background(), etcdStartTimeout)
	defer cancel()

	p, err := c.binary.StartMember(ctx, m.config)
	if err != nil {
		return nil, err
	}

	if cut {
		p.Pause()
	}

	c.mu.Lock()
	m.process, m.running, m.started, m.cut = p, true, true, cut
	c.mu.Unlock()

	c.probe(m, p)

	exited := make(chan error, 1)

	go func() {
		for {
			select {
			case <-p.Done():
				exited <- p.Exited()

				return
			case <-time.After(etcdProbe):
				c.probe(m, p)
			}
		}
	}()

	c.changed(cause)

	return exited, nil
}

// probe asks a member how it is.
func (c *realEtcd) probe(m *realMember, p *upstream.Member) {
	ctx, cancel := context.WithTimeout(context.Background(), etcdProbeTimeout)
	defer cancel()

	err := failure(p.Health(ctx))

	c.mu.Lock()
	defer c.mu.Unlock()

	m.problem = err
}

// end implements [etcdMembers]: as a power failure does it.
func (c *realEtcd) end(id uint64, cause string) {
	m, p := c.find(id), c.running(id)
	if p == nil {
		return
	}

	p.Stop()

	c.mu.Lock()
	m.process, m.running = nil, false
	c.mu.Unlock()

	c.changed(cause)
}

// setCut implements [etcdMembers]. A member that is cut off is paused: its own clients have no answer either.
func (c *realEtcd) setCut(id uint64, cut bool, cause string) {
	m, p := c.find(id), c.running(id)
	if now, there := c.copyOf(id); p == nil || !there || now.cut == cut {
		return
	}

	if cut {
		p.Pause()
	} else {
		p.Resume()
	}

	c.mu.Lock()
	m.cut = cut
	c.mu.Unlock()

	c.changed(cause)
	c.probe(m, p)
}

// kill implements [etcdMembers].
func (c *realEtcd) kill(id uint64, cause string) error {
	return c.damage(id, cause, func(upstream.MemberConfig) error { return nil })
}

// damageLog implements [etcdMembers].
func (c *realEtcd) damageLog(id uint64, cause string) error {
	return c.damage(id, cause, upstream.MemberConfig.DamageLog)
}

// damageStore implements [etcdMembers]. A member that starts is compared with the others, and does not run if its data
// differ, unless those have changed and been compacted meanwhile, as API servers do every five minutes. Then etcd
// compares what each member has after the compaction.
func (c *realEtcd) damageStore(id uint64, cause string) error {
	return c.damage(id, cause, func(m upstream.MemberConfig) error {
		return errors.Join(m.DamageStore(), c.compact())
	})
}

// damage stops a member as a power failure does, and changes its data before it starts again.
func (c *realEtcd) damage(id uint64, cause string, change func(upstream.MemberConfig) error) error {
	m := c.find(id)
	if m == nil {
		return errMemberNotFound
	}

	m.disk.Lock()
	defer m.disk.Unlock()

	c.end(id, cause)

	return change(m.config)
}

// compact makes a revision, and forgets those before it.
func (c *realEtcd) compact() error {
	var made upstream.Changed
	if err := c.insist("kv/put", upstream.HealthKey(), &made); err != nil {
		return err
	}

	return c.insist("kv/compaction", map[string]any{"revision": made.Header.Revision}, nil)
}

// insist calls until etcd agrees: it may be electing a leader.
func (c *realEtcd) insist(method string, in, out any) error {
	for deadline := time.Now().Add(etcdCallTimeout); ; time.Sleep(etcdRetry) {
		if err := c.call(method, in, out); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// changed records how the votes stand by the word of the members: which of the voters that they list answer. That
// those are a quorum, a read shows that needs one.
func (c *realEtcd) changed(cause string) {
	q := Quorum{Cluster: c.id, Cause: cause}
	q.Voters, q.Healthy = c.askVotes()

	c.mu.Lock()
	c.met = c.met || q.Margin() >= 0
	met := c.met
	c.mu.Unlock()

	if !met {
		return
	}

	c.log.add(q)

	if q.Margin() < 0 {
		return
	}

	c.log.reads.Add(1)

	go func() {
		defer c.log.reads.Add(-1)

		if err := c.insist("kv/range", upstream.HealthKey(), nil); err != nil {
			q.Cause, q.Healthy = cause+": no read succeeds: "+err.Error(), q.Needed()-1
			c.log.add(q)
		}
	}()
}

// askVotes counts the voters, and those among them that answer, as the member lists them that has heard most. One that
// is paused is not asked: it would be waited for.
func (c *realEtcd) askVotes() (voters, answering int) {
	var (
		asked    sync.WaitGroup
		mu       sync.Mutex
		newest   uint64
		listed   []upstream.MemberInfo
		answered = map[uint64]bool{}
	)

	ctx, cancel := context.WithTimeout(context.Background(), etcdCallTimeout)
	defer cancel()

	for _, m := range c.known() {
		p := c.running(m.id)
		if p == nil || m.cut {
			continue
		}

		asked.Go(func() {
			var list upstream.MemberList

			st, err := p.Status(ctx)
			if err != nil {
				return
			}

			// A learner lists none.
			err = p.Call(ctx, "cluster/member/list", map[string]any{"linearizable": false}, &list)

			mu.Lock()
			defer mu.Unlock()

			answered[m.id] = true
			if err == nil && st.RaftAppliedIndex >= newest {
				newest, listed = st.RaftAppliedIndex, list.Members
			}
		})
	}

	asked.Wait()

	c.mu.Lock()
	defer c.mu.Unlock()

	if listed != nil {
		c.voters = nil
	}

	for _, m := range listed {
		if !m.IsLearner {
			c.voters = append(c.voters, m.ID)
		}
	}

	for _, id := range c.voters {
		if answered[id] {
			answering++
		}
	}

	return len(c.voters), answering
}

// call calls a member that runs, in the way of Talos: it wants a leader. Voters are asked first.
func (c *realEtcd) call(method string, in, out any) error {
	var asked *realMember

	c.mu.Lock()
	for _, m := range c.all {
		if !m.removed && m.connected() && (asked == nil || asked.problem != nil || asked.learner) {
			asked = m
		}
	}

	if asked == nil {
		c.mu.Unlock()

		return errNoLeader
	}

	p := asked.process
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), etcdCallTimeout)
	defer cancel()

	return failure(p.CallLed(ctx, method, in, out))
}

// local calls a member itself.
func (c *realEtcd) local(id uint64, f func(context.Context, *upstream.Member) error) error {
	p := c.running(id)
	if p == nil {
		return errNoLeader
	}

	ctx, cancel := context.WithTimeout(context.Background(), etcdCallTimeout)
	defer cancel()

	return failure(f(ctx, p))
}

// failure is an error of etcd as clients of Go have it.
func failure(err error) error {
	var refused *upstream.Error
	if errors.As(err, &refused) {
		return &etcdError{Code: codes.Code(refused.Code), Text: strings.TrimPrefix(refused.Message, etcdrules.Prefix)}
	}

	return err
}

// join implements [etcdMembers] (Talos: internal/app/machined/pkg/system/services/etcd.go, addMember).
func (c *realEtcd) join(name string, address netip.Addr) (uint64, error) {
	members, err := c.list()
	if err != nil {
		return 0, err
	}

	for _, m := range members {
		// Who asked may not have heard that the node was added already.
		if m.name == name && m.started || m.address == address && !m.started {
			if err := c.remove(m.id, name+" removes its former self"); err != nil {
				return 0, fmt.Errorf("error removing self from the member list: %w", err)
			}
		}
	}

	var added upstream.MemberList
	if err := c.call("cluster/member/add", upstream.LearnerAt(address.String()), &added); err != nil {
		return 0, fmt.Errorf("error adding member: %w", err)
	}

	m := c.add(added.Member.ID, name, address, true)
	m.config.Joins, m.config.Cluster = true, map[string]string{name: address.String()}

	for _, other := range added.Members {
		if other.ID != m.id {
			m.config.Cluster[cmp.Or(other.Name, fmt.Sprintf("%x", other.ID))] = other.Address()
		}
	}

	c.changed(name + " joins as a learner")

	return m.id, nil
}

// promote implements [etcdMembers].
func (c *realEtcd) promote(id uint64, cause string) (bool, error) {
	now, ok := c.copyOf(id)

	switch {
	case !ok:
		return false, errMemberNotFound
	case !now.learner:
		return false, nil
	}

	err := c.call("cluster/member/promote", upstream.MemberOf(id), nil)
	if err != nil && !errors.Is(err, errNotLearner) {
		return false, err
	}

	m := c.find(id)

	c.mu.Lock()
	m.learner = false
	c.mu.Unlock()

	if p := c.running(id); p != nil {
		c.probe(m, p)
	}

	c.changed(cause)

	return true, nil
}

// remove implements [etcdMembers].
func (c *realEtcd) remove(id uint64, cause string) error {
	err := c.call("cluster/member/remove", upstream.MemberOf(id), nil)
	if err != nil && !errors.Is(err, errMemberNotFound) {
		return err
	}

	if _, there := c.copyOf(id); there {
		m := c.find(id)

		c.mu.Lock()
		m.removed = true
		c.mu.Unlock()
		c.changed(cause)
	}

	return err
}

// forfeit implements [etcdMembers] (Talos: internal/pkg/etcd/etcd.go, ForfeitLeadership).
func (c *realEtcd) forfeit(id uint64, _ string) (string, error) {
	members, err := c.list()
	if err != nil {
		return "", fmt.Errorf("failed to list etcd members: %w", err)
	}

	if len(members) == 1 {
		return "", errOnlyMember
	}

	st, err := c.status(id)
	if err != nil {
		return "", err
	}

	if st.GetLeader() != id {
		return "", nil
	}

	i := slices.IndexFunc(members, func(m etcdMember) bool { return m.id != id })

	return members[i].name, c.local(id, func(ctx context.Context, p *upstream.Member) error {
		return p.Call(ctx, "maintenance/transfer-leadership",
			map[string]any{"targetID": strconv.FormatUint(members[i].id, 10)}, nil)
	})
}

// healthy implements [etcdMembers].
func (c *realEtcd) healthy() error {
	_, err := c.list()

	return err
}

// answers implements [etcdMembers], as the member said last.
func (c *realEtcd) answers(id uint64) error {
	if _, there := c.copyOf(id); !there {
		return errRemoved
	}

	m := c.find(id)

	c.mu.Lock()
	defer c.mu.Unlock()

	if m.process == nil {
		return errNoLeader
	}

	return m.problem
}

// list implements [etcdMembers].
func (c *realEtcd) list() ([]etcdMember, error) {
	var listed upstream.MemberList
	if err := c.call("cluster/member/list", map[string]any{"linearizable": true}, &listed); err != nil {
		return nil, err
	}

	known := c.known()
	out := make([]etcdMember, 0, len(listed.Members))

	for _, told := range listed.Members {
		address, err := netip.ParseAddr(told.Address())
		if err != nil {
			return nil, err
		}

		m := etcdMember{
			id: told.ID, name: told.Name, address: address, learner: told.IsLearner, started: len(told.ClientURLs) > 0,
		}
		for _, k := range known {
			if k.id == m.id {
				m.running, m.cut = k.running, k.cut
			}
		}

		out = append(out, m)
	}

	slices.SortFunc(out, func(a, b etcdMember) int { return cmp.Compare(a.id, b.id) })

	return out, nil
}

// known implements [etcdMembers].
func (c *realEtcd) known() []etcdMember {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []etcdMember

	for _, m := range c.all {
		if !m.removed {
			out = append(out, m.etcdMember)
		}
	}

	slices.SortFunc(out, func(a, b etcdMember) int { return cmp.Compare(a.id, b.id) })

	return out
}

// status implements [etcdMembers].
func (c *realEtcd) status(id uint64) (*machineapi.EtcdMemberStatus, error) {
	var st *upstream.Status

	if err := c.local(id, func(ctx context.Context, p *upstream.Member) (err error) {
		st, err = p.Status(ctx)

		return err
	}); err != nil {
		return nil, err
	}

	return &machineapi.EtcdMemberStatus{
		MemberId: st.Header.MemberID, ProtocolVersion: st.Version, StorageVersion: st.StorageVersion, DbSize: st.DBSize,
		DbSizeInUse: st.DBSizeInUse, Leader: st.Leader, RaftIndex: st.RaftIndex, RaftAppliedIndex: st.RaftAppliedIndex,
		RaftTerm: st.RaftTerm, Errors: st.Errors, IsLearner: st.IsLearner,
	}, nil
}

// alarm implements [etcdMembers].
func (c *realEtcd) alarm(id uint64) {
	_ = c.setAlarm(id, "NOSPACE", "ACTIVATE") // a member that does not run raises none
}

func (c *realEtcd) setAlarm(id uint64, alarm, action string) error {
	return c.call("maintenance/alarm",
		map[string]any{"action": action, "alarm": alarm, "memberID": strconv.FormatUint(id, 10)}, nil)
}

// takeAlarms implements [etcdMembers].
func (c *realEtcd) takeAlarms(id uint64, disarm bool) ([]*machineapi.EtcdMemberAlarm, error) {
	var found struct {
		Alarms []struct {
			MemberID uint64 `json:"memberID,string"`
			Alarm    string `json:"alarm"`
		} `json:"alarms"`
	}

	if err := c.local(id, func(ctx context.Context, p *upstream.Member) error {
		return p.Call(ctx, "maintenance/alarm", map[string]any{"action": "GET"}, &found)
	}); err != nil {
		return nil, err
	}

	var out []*machineapi.EtcdMemberAlarm

	for _, a := range found.Alarms {
		out = append(out, &machineapi.EtcdMemberAlarm{
			MemberId: a.MemberID,
			Alarm:    machineapi.EtcdMemberAlarm_AlarmType(machineapi.EtcdMemberAlarm_AlarmType_value[a.Alarm]),
		})

		if disarm {
			if err := c.setAlarm(a.MemberID, a.Alarm, "DEACTIVATE"); err != nil {
				return nil, err
			}
		}
	}

	return out, nil
}

// snapshot implements [etcdMembers].
func (c *realEtcd) snapshot(id uint64) (data []byte, err error) {
	err = c.local(id, func(ctx context.Context, p *upstream.Member) (err error) {
		data, err = p.Snapshot(ctx)

		return err
	})

	return data, err
}

// defragment implements [etcdMembers].
func (c *realEtcd) defragment(id uint64) error {
	return c.local(id, func(ctx context.Context, p *upstream.Member) error {
		return p.Call(ctx, "maintenance/defragment", nil, nil)
	})
}

// wipe implements [etcdMembers].
func (c *realEtcd) wipe(id uint64) {
	if m := c.find(id); m != nil {
		_ = os.RemoveAll(m.config.Dir) // what is left is in a directory that nothing is started in again
	}
}
