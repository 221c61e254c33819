package ubuntu

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"talos-proxmox/tests/upstream"
)

// realEtcd is a cluster of real members. What concerns the members is asked of etcd; only which processes run the lab
// knows by itself.
type realEtcd struct {
	binary *upstream.Binary
	dir    string

	mu      sync.Mutex
	configs map[string]upstream.MemberConfig // by name, those that were removed included
	running map[string]*upstream.Member
	last    []upstream.MemberInfo // that etcd has told
}

func newRealEtcd(binary *upstream.Binary, dir string) *realEtcd {
	return &realEtcd{
		binary: binary, dir: dir, configs: map[string]upstream.MemberConfig{}, running: map[string]*upstream.Member{},
	}
}

// How long a call may take, one that is made to see whether a member is well, and the start of a member.
const (
	etcdCallTimeout  = 20 * time.Second
	etcdProbeTimeout = 3 * time.Second
	etcdStartTimeout = time.Minute
)

// add implements [datastore]. A member joins without a vote, and the leader's K3s gives it one when it has what the
// others have (K3s: pkg/etcd/etcd.go, join, manageLearners).
func (e *realEtcd) add(ctx context.Context, m member) error {
	c := upstream.MemberConfig{Name: m.name, Dir: e.dir, Address: m.address}

	e.mu.Lock()
	first := len(e.configs) == 0
	e.mu.Unlock()

	var learner uint64

	if !first {
		var err error
		if learner, err = e.join(m, &c); err != nil {
			return err
		}
	}

	e.mu.Lock()
	e.configs[m.name] = c
	e.mu.Unlock()

	err := e.launch(ctx, c)
	if err == nil {
		err = until(ctx, func() error { return e.promote(learner) })
	}

	if err != nil {
		e.stop(m.name)
	}

	return err
}

// promote gives a member its vote, if it has none.
func (e *realEtcd) promote(id uint64) error {
	known, err := e.list()
	if err != nil || !slices.ContainsFunc(known, func(m upstream.MemberInfo) bool { return m.ID == id && m.IsLearner }) {
		return err
	}

	if err := e.call("cluster/member/promote", upstream.MemberOf(id), nil); err != nil {
		return err
	}

	_, err = e.list()

	return err
}

// until asks again and again until etcd agrees.
func until(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(again):
		}
	}
}

// join has etcd know the member, and its configuration the others; it returns the id of one that has no vote yet. One
// without a name at its address is itself: it was added before, and never started.
func (e *realEtcd) join(m member, c *upstream.MemberConfig) (learner uint64, err error) {
	known, err := e.list()
	if err != nil {
		return 0, err
	}

	i := slices.IndexFunc(known, func(k upstream.MemberInfo) bool {
		return k.Name == m.name || k.Name == "" && k.Address() == m.address
	})

	var self upstream.MemberInfo

	switch {
	case i >= 0:
		self = known[i]
	case slices.ContainsFunc(membersOf(known), m.sameNode):
		return 0, errDuplicate
	default:
		var added upstream.MemberList
		if err := e.call("cluster/member/add", upstream.LearnerAt(m.address), &added); err != nil {
			return 0, err
		}

		self, known = added.Member, added.Members
	}

	c.Joins, c.Cluster = true, map[string]string{m.name: m.address}

	for _, other := range known {
		if other.ID != self.ID {
			c.Cluster[cmp.Or(other.Name, strconv.FormatUint(other.ID, 16))] = other.Address()
		}
	}

	if !self.IsLearner {
		return 0, nil
	}

	return self.ID, nil
}

// start implements [datastore].
func (e *realEtcd) start(ctx context.Context, name string) error {
	e.mu.Lock()
	c, known := e.configs[name]
	e.mu.Unlock()

	// Where no other answers, the member itself finds out.
	listed, err := e.list()
	gone := err == nil && !slices.ContainsFunc(listed, func(m upstream.MemberInfo) bool { return m.Name == name })

	if !known || gone {
		return errRemoved
	}

	return e.launch(ctx, c)
}

func (e *realEtcd) launch(ctx context.Context, c upstream.MemberConfig) error {
	e.stop(c.Name) // what is left of a start that was cut off

	ctx, cancel := context.WithTimeout(ctx, etcdStartTimeout)
	defer cancel()

	p, err := e.binary.StartMember(ctx, c)
	if err != nil {
		return err
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	e.running[c.Name] = p

	return nil
}

// stop implements [datastore].
func (e *realEtcd) stop(name string) {
	e.mu.Lock()
	p := e.running[name]
	delete(e.running, name)
	e.mu.Unlock()

	if p != nil {
		p.Stop()
	}
}

// remove implements [datastore].
func (e *realEtcd) remove(name, address string) (bool, error) {
	known, err := e.list()
	if err != nil {
		return false, err
	}

	for _, m := range known {
		if m.Name == name && m.Address() == address {
			err := e.call("cluster/member/remove", upstream.MemberOf(m.ID), nil)
			if refused(err, "member not found") { // another server was faster
				return false, nil
			}

			return err == nil, err
		}
	}

	return false, nil
}

// ended implements [datastore].
func (e *realEtcd) ended(name string) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()

	if p := e.running[name]; p != nil {
		return p.Done()
	}

	return nil
}

// refused tells whether etcd has answered with an error of a text.
func refused(err error, text string) bool {
	var its *upstream.Error

	return errors.As(err, &its) && strings.Contains(its.Message, text)
}

// answers implements [datastore].
func (e *realEtcd) answers(name string) error {
	e.mu.Lock()
	p := e.running[name]
	e.mu.Unlock()

	if p == nil {
		return errNoLeader
	}

	ctx, cancel := context.WithTimeout(context.Background(), etcdProbeTimeout)
	defer cancel()

	return p.Health(ctx)
}

// voters implements [datastore], as etcd said last where it does not answer.
func (e *realEtcd) voters() []member {
	known, err := e.list()
	if err != nil {
		e.mu.Lock()
		known = e.last
		e.mu.Unlock()
	}

	return membersOf(slices.DeleteFunc(slices.Clone(known), func(m upstream.MemberInfo) bool { return m.IsLearner }))
}

// membersOf are members by what K3s names them: their node, and something more.
func membersOf(known []upstream.MemberInfo) []member {
	var all []member

	for _, m := range known {
		all = append(all, member{name: m.Name, node: nodeOf(m.Name), address: m.Address()})
	}

	return all
}

// nodeOf is the node of a member, by the member's name.
func nodeOf(name string) string {
	if i := strings.LastIndex(name, "-"); i >= 0 {
		return name[:i]
	}

	return name
}

// list asks etcd who its members are.
func (e *realEtcd) list() ([]upstream.MemberInfo, error) {
	var listed upstream.MemberList
	if err := e.call("cluster/member/list", map[string]any{"linearizable": true}, &listed); err != nil {
		return nil, err
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	e.last = listed.Members

	return listed.Members, nil
}

// call asks one member after another, until one answers. An answer of etcd's own is one, too.
func (e *realEtcd) call(method string, in, out any) error {
	e.mu.Lock()
	var asked []*upstream.Member
	for _, p := range e.running {
		asked = append(asked, p)
	}
	e.mu.Unlock()

	var err error = errNoLeader

	for _, p := range asked {
		ctx, cancel := context.WithTimeout(context.Background(), etcdCallTimeout)
		err = p.CallLed(ctx, method, in, out)

		cancel()

		// Another may have a leader, or a vote.
		var its *upstream.Error
		if err == nil || errors.As(err, &its) && its.Code != uint32(codes.Unavailable) &&
			!refused(err, "not supported for learner") {
			return err
		}
	}

	return err
}

// snapshot implements [datastore].
func (e *realEtcd) snapshot(name string) ([]byte, error) {
	if err := e.answers(name); err != nil {
		return nil, err
	}

	e.mu.Lock()
	p := e.running[name]
	e.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), etcdCallTimeout)
	defer cancel()

	return p.Snapshot(ctx)
}
