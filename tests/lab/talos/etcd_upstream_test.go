package talos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/upstream"
)

// etcdSide is an etcd cluster whose members are called by their names: one of real members, or the lab's.
type etcdSide interface {
	// found begins a cluster of voters that run.
	found(names ...string)
	// settle waits until the members that run have known each other for as long as etcd wants it.
	settle()
	start(name string)
	stop(name string)

	// These are calls of a client, of the member that leads unless one is named.
	add(name string) error
	promote(name string) error
	remove(name string) error
	moveLeader(to string) error
	list(from string) (string, error)
	status(of string) (string, error)
	put() error
	alarms() string
	disarm()
	leads() string
	fill()
	// damageLog stops a member, and says what Talos does of its start with a log that is damaged.
	damageLog(name string) string
	// damageStore stops a member, and starts it with other data, until etcd has found that out.
	damageStore(name string)
}

// TestEtcd compares the lab's etcd with the real one, in clusters of the sizes that control planes have.
func TestEtcd(t *testing.T) {
	binary, err := upstream.Open(t.Context())
	require.NoError(t, err)

	for _, size := range []int{1, 3, 5} {
		for name, play := range map[string]func(*etcdTape, etcdSide, []string){
			"members": membersPlay, "quorum": quorumPlay, "space": spacePlay, "damage": damagePlay,
		} {
			if name == "space" && size == 5 || name == "damage" && size != 3 {
				continue // nothing that three members do not show
			}

			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) {
				t.Parallel()

				var names []string
				for n := range size {
					names = append(names, fmt.Sprintf("cp-%d", n+1))
				}

				record := func(side etcdSide) (played string) {
					var tape etcdTape

					defer func() {
						switch r := recover().(type) {
						case nil:
						case trouble:
							played = tape.String() + "\n" + r.Error()
						default:
							panic(r)
						}
					}()

					side.found(names...)
					side.settle()
					play(&tape, side, names)

					return tape.String()
				}

				ours, theirs := record(&labEtcd{T: t}), ""

				// On a busy machine members lose sight of each other now and then.
				for range 3 {
					if theirs = record(&etcdOfRelease{T: t, binary: binary}); theirs == ours {
						return
					}

					t.Log(theirs)
				}

				require.Equal(t, theirs, ours, "real and lab")
			})
		}
	}
}

// etcdTape is what happened, in order.
type etcdTape struct{ lines []string }

func (p *etcdTape) String() string { return strings.Join(p.lines, "\n") }

func (p *etcdTape) note(what, answer string) { p.lines = append(p.lines, what+": "+answer) }

// outcome notes an error with its code.
func (p *etcdTape) outcome(what string, err error) {
	var (
		real *upstream.Error
		ours *etcdError
	)

	switch {
	case err == nil:
		p.note(what, "done")
	case errors.As(err, &real):
		p.note(what, fmt.Sprintf("%d %s", real.Code, real.Message))
	case errors.As(err, &ours):
		p.note(what, fmt.Sprintf("%d %s", ours.Code, ours.Error()))
	default:
		p.note(what, err.Error())
	}
}

func (p *etcdTape) answer(what, answer string, err error) {
	if err != nil {
		p.outcome(what, err)
	} else {
		p.note(what, answer)
	}
}

func (p *etcdTape) list(s etcdSide, what, from string) {
	answer, err := s.list(from)
	p.answer(what, founders.ReplaceAllString(answer, "one"), err)
}

func (p *etcdTape) status(s etcdSide, what, of string) {
	answer, err := s.status(of)
	p.answer(what, answer, err)
}

// founders are the members that a cluster was founded with. Which of them leads is left to etcd.
var founders = regexp.MustCompile(`"cp-\d"`)

// followers are the members that do not lead.
func followers(s etcdSide, names []string) []string {
	leader := s.leads()

	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == leader })
}

// membersPlay lets members come and go.
func membersPlay(p *etcdTape, s etcdSide, names []string) {
	p.list(s, "founded", names[0])
	p.status(s, "status", names[0])
	p.outcome("remove an unknown member", s.remove("unknown"))
	p.outcome("promote an unknown member", s.promote("unknown"))
	p.outcome("leader becomes an unknown member", s.moveLeader("unknown"))

	if len(names) == 1 {
		p.outcome("remove the only one", s.remove(names[0]))
	} else {
		p.outcome("leader becomes another", s.moveLeader(followers(s, names)[0]))
		s.settle()
	}

	p.outcome("add", s.add("new"))
	p.list(s, "added", names[0])
	p.outcome("add at the same address", s.add("new"))
	p.outcome("add another learner", s.add("newer"))
	p.outcome("promote what has not started", s.promote("new"))
	p.outcome("leader becomes a learner", s.moveLeader("new"))
	s.start("new")
	s.settle()
	p.list(s, "started", names[0])
	p.list(s, "asked of the learner", "new")
	p.status(s, "status of the learner", "new")
	p.outcome("promote", s.promote("new"))
	s.settle()
	p.list(s, "promoted", names[0])
	p.status(s, "status of the new one", "new")

	// it fails, and is removed while it is away
	s.stop("new")
	s.settle()
	p.outcome("add while one is away", s.add("newest"))

	if len(names) > 1 {
		p.outcome("remove one that is there", s.remove(followers(s, names)[0]))
		p.outcome("remove the one that is away", s.remove("new"))
		s.settle()
		p.list(s, "removed", s.leads())
	}
}

// quorumPlay takes members away until there is no quorum, and brings them back.
func quorumPlay(p *etcdTape, s etcdSide, names []string) {
	down := followers(s, names)[:len(names)/2]
	for _, name := range down {
		s.stop(name)
	}

	s.settle()
	p.list(s, "as few as can be", s.leads())
	p.outcome("write", s.put())

	if len(names) == 1 {
		return
	}

	last := followers(s, names)
	last = slices.DeleteFunc(last, func(n string) bool { return slices.Contains(down, n) })
	rest := s.leads()

	if len(last) > 0 {
		p.outcome("remove one of the last", s.remove(last[0]))
		s.stop(last[0])
	} else {
		p.outcome("remove the leader", s.remove(rest))

		rest = ""
		for _, n := range names {
			if !slices.Contains(down, n) && n != s.leads() {
				rest = n
			}
		}
	}

	s.settle()
	p.list(s, "without a quorum", rest)
	p.status(s, "status without a quorum", rest)

	// they come back
	for _, name := range down {
		s.start(name)
	}

	s.settle()
	p.list(s, "with a quorum", rest)
	p.outcome("write again", s.put())
}

// spacePlay fills the database.
func spacePlay(p *etcdTape, s etcdSide, names []string) {
	p.outcome("write", s.put())
	p.note("alarms", s.alarms())
	s.fill()
	p.outcome("write when it is full", s.put())
	p.note("alarms when it is full", s.alarms())
	p.status(s, "status when it is full", names[0])
	s.disarm()
	p.note("alarms when they are disarmed", s.alarms())
}

// damagePlay damages the data of one member of three, in two ways.
func damagePlay(p *etcdTape, s etcdSide, names []string) {
	sick := followers(s, names)

	p.outcome("write", s.put())
	s.damageStore(sick[0])
	s.settle()
	p.note("alarms of other data", s.alarms())
	p.status(s, "status with other data", s.leads())
	p.outcome("write with other data", s.put())
	p.outcome("remove it", s.remove(sick[0]))
	p.note("alarms that are left", s.alarms())
	s.disarm()
	p.outcome("write again", s.put())
	p.note("start with a damaged log", s.damageLog(sick[1]))
}

// etcdOfRelease are real members.
type etcdOfRelease struct {
	*testing.T
	binary  *upstream.Binary
	dir     string
	net     [2]byte
	members map[string]*upstream.Member // that run
	known   map[string]bool
	changed time.Time
}

// etcdNetworks numbers the networks of clusters, from anywhere on.
var etcdNetworks atomic.Uint32

func init() { etcdNetworks.Store(rand.Uint32N(1 << 30)) }

// trouble is what keeps a test from going on with real members.
type trouble struct{ error }

func (e *etcdOfRelease) check(err error) {
	if err == nil {
		return
	}

	for name, m := range e.members {
		e.Log(name, m.Tail())
	}

	panic(trouble{err})
}

// address is one for each name.
func (e *etcdOfRelease) address(name string) string {
	n := sha256.Sum256([]byte(name))

	return netip.AddrFrom4([4]byte{127, e.net[0], e.net[1], 1 + n[0]%250}).String()
}

func (e *etcdOfRelease) addresses() map[string]string {
	all := map[string]string{}
	for name := range e.known {
		all[name] = e.address(name)
	}

	return all
}

func (e *etcdOfRelease) found(names ...string) {
	e.dir, e.members, e.known = e.TempDir(), map[string]*upstream.Member{}, map[string]bool{}
	n := etcdNetworks.Add(1) % (3 * 256)
	e.net = [2]byte{byte(252 + n/256), byte(n % 256)}

	for _, name := range names {
		e.known[name] = true
	}

	started := make(chan error, len(names))
	members := make(chan *upstream.Member, len(names))

	for _, name := range names {
		go func() {
			m, err := e.launch(name, false)
			members <- m
			started <- err
		}()
	}

	for range names {
		if m := <-members; m != nil {
			e.members[m.Config.Name] = m
		}

		e.check(<-started)
	}

	e.changed = time.Now()
	e.Cleanup(func() {
		for _, m := range e.members {
			m.Stop()
		}
	})
}

// quota is what the database may have in this test.
const etcdQuota = 2 << 20

func (e *etcdOfRelease) launch(name string, joins bool) (*upstream.Member, error) {
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()

	return e.binary.StartMember(ctx, upstream.MemberConfig{
		Name: name, Dir: e.dir, Address: e.address(name), Cluster: e.addresses(), Quota: etcdQuota, Joins: joins,
	})
}

func (e *etcdOfRelease) start(name string) {
	m, err := e.launch(name, true)
	e.check(err)

	e.members[name], e.changed = m, time.Now()
}

func (e *etcdOfRelease) stop(name string) {
	e.members[name].Stop()
	delete(e.members, name)
	e.changed = time.Now()
}

// healthInterval is how long members have to have known each other (etcd: server/etcdserver/server.go).
const healthInterval = 5 * time.Second

func (e *etcdOfRelease) settle() {
	time.Sleep(time.Until(e.changed.Add(healthInterval + time.Second)))
}

// any is a member that runs, preferably the one that leads.
func (e *etcdOfRelease) any() *upstream.Member {
	if m := e.members[e.leads()]; m != nil {
		return m
	}

	return e.voter()
}

type etcdMemberJSON struct {
	ID         string   `json:"ID"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

func (e *etcdOfRelease) memberList(from *upstream.Member, linearizable bool) ([]etcdMemberJSON, error) {
	var out struct {
		Members []etcdMemberJSON `json:"members"`
	}

	call := from.Call
	if linearizable {
		call = from.CallLed
	}

	err := call(e.Context(), "cluster/member/list", map[string]any{"linearizable": linearizable}, &out)

	return out.Members, err
}

// id is that of a member, or of none.
func (e *etcdOfRelease) id(name string) string {
	all, err := e.memberList(e.any(), false)
	e.check(err)

	for _, m := range all {
		if slices.ContainsFunc(m.PeerURLs, func(u string) bool { return strings.Contains(u, "//"+e.address(name)+":") }) {
			return m.ID
		}
	}

	return "1"
}

func (e *etcdOfRelease) name(id string) string {
	all, err := e.memberList(e.voter(), false)
	e.check(err)

	for _, m := range all {
		if m.ID == id {
			return m.Name
		}
	}

	return ""
}

// voter is a member that runs, whichever, but no learner.
func (e *etcdOfRelease) voter() *upstream.Member {
	for name, m := range e.members {
		if strings.HasPrefix(name, "cp-") || len(e.members) == 1 {
			return m
		}
	}

	return nil
}

func (e *etcdOfRelease) add(name string) error {
	time.Sleep(time.Second) // etcd makes a member's ID of its address and the second

	err := e.any().CallLed(e.Context(), "cluster/member/add", map[string]any{
		"peerURLs": []string{"http://" + e.address(name) + ":2380"}, "isLearner": true,
	}, nil)
	if err == nil {
		e.known[name] = true
	}

	return err
}

func (e *etcdOfRelease) promote(name string) error {
	id := e.id(name)

	return e.any().CallLed(e.Context(), "cluster/member/promote", map[string]any{"ID": id}, nil)
}

func (e *etcdOfRelease) remove(name string) error {
	id := e.id(name)

	err := e.any().CallLed(e.Context(), "cluster/member/remove", map[string]any{"ID": id}, nil)
	if err == nil {
		delete(e.known, name)

		if m := e.members[name]; m != nil {
			m.Stop()
			delete(e.members, name)
		}

		e.changed = time.Now()
	}

	return err
}

func (e *etcdOfRelease) moveLeader(to string) error {
	return e.any().CallLed(e.Context(), "maintenance/transfer-leadership", map[string]any{"targetID": e.id(to)}, nil)
}

func (e *etcdOfRelease) list(from string) (string, error) {
	all, err := e.memberList(e.members[from], true)

	var out []string

	for _, m := range all {
		out = append(out, fmt.Sprintf("%q of %d peer and %d client URLs, learner %v", m.Name, len(m.PeerURLs),
			len(m.ClientURLs), m.IsLearner))
	}

	slices.Sort(out)

	return strings.Join(out, "; "), err
}

type etcdStatusJSON struct {
	Leader    string   `json:"leader"`
	RaftTerm  string   `json:"raftTerm"`
	RaftIndex string   `json:"raftIndex"`
	DBSize    string   `json:"dbSize"`
	Errors    []string `json:"errors"`
	IsLearner bool     `json:"isLearner"`

	Version        string `json:"version"`
	StorageVersion string `json:"storageVersion"`
}

// plainErrors are the errors of a status: whichever member is out of space, how many are, and however it is set.
func plainErrors(errs []string) string {
	var plain []string
	for _, err := range errs {
		plain = append(plain, alarmed.ReplaceAllString(strings.Join(strings.Fields(err), " "), "<member>"))
	}

	slices.Sort(plain)

	return strings.Join(slices.Compact(plain), "; ")
}

var alarmed = regexp.MustCompile(`<cp-\d>`)

func (e *etcdOfRelease) status(of string) (string, error) {
	var st etcdStatusJSON

	err := e.members[of].Call(e.Context(), "maintenance/status", nil, &st)
	named := st.Errors

	for name := range e.known {
		for i, text := range named {
			named[i] = strings.ReplaceAll(text, e.id(name), "<"+name+">")
		}
	}

	return fmt.Sprintf("leader %v, learner %v, errors %q, %s, %s", st.Leader != "" && st.Leader != "0", st.IsLearner,
		plainErrors(named), st.Version, st.StorageVersion), err
}

func (e *etcdOfRelease) put() error {
	return e.any().Call(e.Context(), "kv/put", map[string]any{"key": []byte("k"), "value": []byte("v")}, nil)
}

func (e *etcdOfRelease) fill() {
	require.Eventually(e, func() bool {
		return e.any().Call(e.Context(), "kv/put",
			map[string]any{"key": []byte("big"), "value": bytes.Repeat([]byte("x"), 1<<20)}, nil) != nil
	}, 20*time.Second, time.Millisecond)
}

type etcdAlarmJSON struct {
	MemberID string `json:"memberID"`
	Alarm    string `json:"alarm"`
}

func (e *etcdOfRelease) raised() []etcdAlarmJSON {
	var out struct {
		Alarms []etcdAlarmJSON `json:"alarms"`
	}

	e.check(e.any().Call(e.Context(), "maintenance/alarm", map[string]any{"action": "GET"}, &out))

	return out.Alarms
}

func (e *etcdOfRelease) alarms() string {
	var all []string
	for _, a := range e.raised() {
		all = append(all, a.Alarm)
	}

	return strings.Join(slices.Compact(all), ", ")
}

func (e *etcdOfRelease) disarm() {
	for _, a := range e.raised() {
		e.check(e.any().Call(e.Context(), "maintenance/alarm",
			map[string]any{"action": "DEACTIVATE", "alarm": a.Alarm, "memberID": a.MemberID}, nil))
	}
}

func (e *etcdOfRelease) damageLog(name string) string {
	m := e.members[name]
	e.stop(name)
	require.NoError(e, m.Config.DamageLog())

	_, err := e.launch(name, true)
	require.ErrorContains(e, err, "crc mismatch")

	return restarts(err)
}

func (e *etcdOfRelease) damageStore(name string) {
	m := e.members[name]

	time.Sleep(time.Second) // its database has what was written
	e.stop(name)
	require.NoError(e, m.Config.DamageStore())

	// Otherwise it is compared when it starts, and does not run.
	var made upstream.Changed

	e.check(e.any().Call(e.Context(), "kv/put", upstream.HealthKey(), &made))
	e.check(e.any().Call(e.Context(), "kv/compaction", map[string]any{"revision": made.Header.Revision}, nil))
	e.start(name)
	require.Eventually(e, func() bool { return e.alarms() != "" }, 20*time.Second, 100*time.Millisecond)
}

func (e *etcdOfRelease) leads() string {
	var st etcdStatusJSON
	if m := e.voter(); m != nil {
		e.check(m.Call(e.Context(), "maintenance/status", nil, &st))
	}

	return e.name(st.Leader)
}

// labEtcd are members of the lab.
type labEtcd struct {
	*testing.T
	c *etcdModel
}

func (e *labEtcd) address(name string) netip.Addr {
	n := sha256.Sum256([]byte(name))

	return netip.AddrFrom4([4]byte{127, 0, 0, 1 + n[0]%250})
}

func (e *labEtcd) found(names ...string) {
	e.c, _ = newEtcd(&quorumLog{}, kube.NewCluster(), names[0], e.address(names[0]))

	for _, name := range names[1:] {
		e.c.add(name, e.address(name), false)
	}

	for _, name := range names {
		e.start(name)
	}
}

func (e *labEtcd) settle() {}

func (e *labEtcd) id(name string) uint64 {
	for _, m := range e.c.known() {
		if m.name == name {
			return m.id
		}
	}

	return 1
}

func (e *labEtcd) start(name string) {
	_, err := e.c.start(e.id(name), constants.DefaultEtcdVersion, false, "test")
	require.NoError(e, err)
}

func (e *labEtcd) stop(name string) { e.c.end(e.id(name), "test") }

func (e *labEtcd) add(name string) error {
	_, err := e.c.join(name, e.address(name))

	return err
}

func (e *labEtcd) promote(name string) error {
	_, err := e.c.promote(e.id(name), "test")

	return err
}

func (e *labEtcd) remove(name string) error { return e.c.remove(e.id(name), "test") }

func (e *labEtcd) moveLeader(to string) error { return e.c.moveLeader(e.id(to), "test") }

func (e *labEtcd) list(from string) (string, error) {
	if err := e.c.answers(e.id(from)); err != nil {
		return "", err
	}

	var out []string

	for _, m := range e.c.known() {
		name, clients := m.name, 1
		if !m.started {
			name, clients = "", 0
		}

		out = append(out, fmt.Sprintf("%q of 1 peer and %d client URLs, learner %v", name, clients, m.learner))
	}

	slices.Sort(out)

	return strings.Join(out, "; "), nil
}

func (e *labEtcd) status(of string) (string, error) {
	st, err := e.c.status(e.id(of))
	named := st.GetErrors()

	for _, m := range e.c.known() {
		for i, text := range named {
			named[i] = strings.ReplaceAll(text, strconv.FormatUint(m.id, 10), "<"+m.name+">")
		}
	}

	return fmt.Sprintf("leader %v, learner %v, errors %q, %s, %s", st.GetLeader() != 0, st.GetIsLearner(),
		plainErrors(named), st.GetProtocolVersion(), st.GetStorageVersion()), err
}

func (e *labEtcd) put() error { return e.c.writable(false) }

func (e *labEtcd) fill() { e.c.alarm(e.id(e.leads())) }

func (e *labEtcd) alarms() string {
	raised, err := e.c.takeAlarms(0, false)
	require.NoError(e, err)

	var all []string
	for _, a := range raised {
		all = append(all, a.GetAlarm().String())
	}

	return strings.Join(all, ", ")
}

func (e *labEtcd) disarm() {
	_, err := e.c.takeAlarms(0, true)
	require.NoError(e, err)
}

func (e *labEtcd) damageLog(name string) string {
	require.NoError(e, e.c.damageLog(e.id(name), "test"))

	_, err := e.c.start(e.id(name), constants.DefaultEtcdVersion, false, "test")

	return restarts(err)
}

func (e *labEtcd) damageStore(name string) { require.NoError(e, e.c.damageStore(e.id(name), "test")) }

func (e *labEtcd) leads() string {
	for _, m := range e.c.known() {
		if m.id == e.c.leader {
			return m.name
		}
	}

	return ""
}

// The lab's snapshots are etcd's, and etcd's are the lab's.
func TestSnapshotsOfEtcd(t *testing.T) {
	t.Parallel()

	binary, err := upstream.Open(t.Context())
	require.NoError(t, err)

	e := &etcdOfRelease{T: t, binary: binary}
	e.found("cp-1")
	require.NoError(t, e.put())

	theirs, err := e.voter().Snapshot(t.Context())
	require.NoError(t, err)

	entries, revision, err := readSnapshot(theirs, false)
	require.NoError(t, err)
	require.EqualValues(t, 2, revision)
	require.Equal(t, []kube.Entry{{Key: "k", Value: []byte("v"), Revision: 2}}, entries)

	pki, err := upstream.NewPKI()
	require.NoError(t, err)

	// the lab's, read and recovered from by etcd's own tool
	cluster := kube.NewCluster()
	require.NoError(t, cluster.Apply(kube.Manifests{
		CA: pki.Server, TokenID: "abcdef", TokenSecret: "0123456789abcdef",
		APIServerIP: netip.MustParseAddr("10.96.0.1"), DNSIP: netip.MustParseAddr("10.96.0.10"),
	}))

	entries, revision, err = cluster.Dump()
	require.NoError(t, err)

	model, id := newEtcd(&quorumLog{}, cluster, "cp-1", netip.MustParseAddr("127.0.0.1"))

	ours, err := model.snapshot(id)
	require.NoError(t, err)

	dir := t.TempDir()
	file := filepath.Join(dir, "snapshot.db")
	require.NoError(t, os.WriteFile(file, ours, 0o600))

	out, err := binary.Run(t.Context(), "etcdutl", "--write-out=json", "snapshot", "status", file)
	require.NoError(t, err)

	var status struct {
		Revision uint64 `json:"revision"`
		TotalKey int    `json:"totalKey"`
	}

	require.NoError(t, json.Unmarshal(out, &status))
	require.Equal(t, revision, status.Revision)
	require.GreaterOrEqual(t, status.TotalKey, len(entries))

	restore := func(file, name string, more ...string) error {
		_, err := binary.Run(t.Context(), append([]string{
			"etcdutl", "snapshot", "restore", file, "--name=" + name,
			"--data-dir=" + filepath.Join(e.dir, name, "data"), "--initial-cluster=" + name + "=http://" + e.address(name) + ":2380",
			"--initial-advertise-peer-urls=http://" + e.address(name) + ":2380",
		}, more...)...)

		return err
	}

	require.NoError(t, restore(file, "restored"))

	e.known = map[string]bool{"restored": true}
	m, err := e.launch("restored", false)
	require.NoError(t, err)
	t.Cleanup(m.Stop)

	var found struct {
		Count string `json:"count"`
	}

	require.NoError(t, m.Call(t.Context(), "kv/range",
		map[string]any{"key": []byte("/registry/"), "range_end": []byte("/registry0")}, &found))
	require.Equal(t, strconv.Itoa(len(entries)), found.Count)

	// what is damaged is refused by both, in the same words
	broken := bytes.Clone(ours)
	broken[len(broken)-1] ^= 1

	for name, data := range map[string][]byte{"broken": broken, "bare": ours[:len(ours)-sha256.Size]} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, data, 0o600))

		_, _, err := readSnapshot(data, false)
		require.Error(t, err)
		require.ErrorContains(t, restore(file, name), err.Error())
	}
}
