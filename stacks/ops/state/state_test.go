package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// fake is a stack without Pulumi. It notes what is asked of it, and fails where it is told to.
type fake struct {
	present []string // the names of the resources in its state
	pending int
	fail    map[string]error
	asked   []string
	// lost is forgotten by an import.
	lost string
	// broken is exported instead of the state.
	broken []byte
	// refreshes says that the project always does.
	refreshes bool
}

func (f *fake) Name() string    { return "dev" }
func (f *fake) Project() string { return "talos-proxmox" }

func (f *fake) ask(what string) error {
	f.asked = append(f.asked, what)

	return f.fail[what]
}

func (f *fake) Export(context.Context) ([]byte, error) {
	if f.broken != nil {
		return f.broken, f.ask("export")
	}

	return stateOf("dev", f.pending, f.present...), f.ask("export")
}

func (f *fake) Import(_ context.Context, text []byte) error {
	if err := f.ask("import"); err != nil {
		return err
	}

	d, err := decode(text, f.Project(), f.Name())
	f.present = nil

	for _, urn := range d.URNs {
		if name := urn[strings.LastIndex(urn, ":")+1:]; name != f.lost {
			f.present = append(f.present, name)
		}
	}

	return err
}

func (f *fake) Free(context.Context) error { return f.ask("free") }

func (f *fake) Resources(context.Context) ([]string, error) {
	d, err := decode(stateOf("dev", 0, f.present...), f.Project(), f.Name())

	return d.URNs, errors.Join(err, f.ask("resources"))
}

func (f *fake) CheckConfig(context.Context) error { return f.ask("config") }

func (f *fake) Answers(context.Context) error { return f.ask("answers") }

func (f *fake) Refreshes() bool { return f.refreshes }

func (f *fake) Preview(_ context.Context, out io.Writer) (map[string]int, error) {
	fmt.Fprintln(out, "(what pulumi prints)")

	return map[string]int{"same": 3, "update": 1, "create": 2, "delete": 0}, f.ask("preview")
}

func stateOf(stack string, pending int, names ...string) []byte {
	resources := []string{}
	for _, name := range names {
		resources = append(resources, fmt.Sprintf(
			`{"urn": "urn:pulumi:%s::talos-proxmox::a:b:C::%s", "type": "a:b:C", "custom": true}`, stack, name))
	}

	operations := strings.TrimSuffix(strings.Repeat(`{"type": "creating"},`, pending), ",")

	return fmt.Appendf(nil,
		`{"version": 3, "deployment": {"manifest": {}, "resources": [%s], "pending_operations": [%s]}}`,
		strings.Join(resources, ","), operations)
}

// guarded is a fake stack with two resources, and its guard.
func guarded(t *testing.T) (*fake, State, *strings.Builder) {
	t.Helper()

	f, out := &fake{present: []string{"a", "b"}, fail: map[string]error{}}, &strings.Builder{}

	return f, State{Stack: f, Dir: filepath.Join(t.TempDir(), "state-backups"), Out: out}, out
}

// files are the names in the directory of snapshots.
func files(t *testing.T, s State) []string {
	t.Helper()

	entries, err := os.ReadDir(s.Dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}

	return names
}

func write(t *testing.T, path string, text []byte) string {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func equal[T any](t *testing.T, want, got T) {
	t.Helper()

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func fails(t *testing.T, want string, err error) {
	t.Helper()

	if err == nil || err.Error() != want {
		t.Errorf("want: %s\ngot:  %v", want, err)
	}
}

// TestSnapshot: two in one second are two files, whole, readable by the owner only.
func TestSnapshot(t *testing.T) {
	f, s, out := guarded(t)

	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			if _, err := s.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})

	equal(t, []string{"dev.20000101-000000.json", "dev.20000101-000001.json"}, files(t, s))
	equal(t,
		fmt.Sprintf(
			"snapshot %[1]s/dev.20000101-000000.json, 2 resources\nsnapshot %[1]s/dev.20000101-000001.json, 2 resources\n",
			s.Dir), out.String())

	for path, mode := range map[string]os.FileMode{s.Dir: os.ModeDir | 0o700, s.Dir + "/dev.20000101-000000.json": 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		equal(t, mode, info.Mode())
	}

	text, err := os.ReadFile(s.Dir + "/dev.20000101-000001.json")
	if err != nil {
		t.Fatal(err)
	}

	equal(t, string(stateOf("dev", 0, f.present...)), string(text))
}

// TestKeep: the oldest go, each is named, and what is no snapshot of the stack, or was kept by a restore, stays.
func TestKeep(t *testing.T) {
	_, s, out := guarded(t)
	others := []string{
		"dev.19990101-000000.json.bak", "dev.import.json", "dev.pre-restore.19990101-000000.json",
		"prod.19990101-000000.json",
		"dev.eu.19990101-000000.json", "dev.19991399-000000.json",
	}

	for _, name := range append(others, "dev.19990101-000000.json", "dev.19990102-000000.json",
		"dev.19990103-000000.json") {
		write(t, filepath.Join(s.Dir, name), stateOf("dev", 0, "a"))
	}

	unreadable := "dev.19990104-000000.json"
	write(t, filepath.Join(s.Dir, unreadable), nil)

	s.Keep = 2

	synctest.Test(t, func(t *testing.T) {
		if _, err := s.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	})

	want := append(others, unreadable, "dev.19990103-000000.json", "dev.20000101-000000.json")
	slices.Sort(want)
	equal(t, want, files(t, s))
	equal(t, fmt.Sprintf("snapshot %[1]s/dev.20000101-000000.json, 2 resources\nremoved  %[1]s/dev.19990102-000000.json\n"+
		"removed  %[1]s/dev.19990101-000000.json\n", s.Dir), out.String())
}

// TestKeepsWhatHolds: after a lost backend, snapshots hold nothing. They take no place of those that can be restored.
func TestKeepsWhatHolds(t *testing.T) {
	_, s, _ := guarded(t)

	for day, text := range [][]byte{
		stateOf("dev", 0, "a"), stateOf("dev", 0, "a"), stateOf("dev", 0, "a"), stateOf("dev", 0, "a", "b"),
		stateOf("dev", 0), stateOf("dev", 0), stateOf("dev", 0), stateOf("dev", 0), stateOf("dev", 0),
	} {
		write(t, filepath.Join(s.Dir, fmt.Sprintf("dev.2000010%d-000000.json", day+1)), text)
	}

	removed, err := s.Snapshots().Prune(3)
	if err != nil {
		t.Fatal(err)
	}

	equal(t, 1, len(removed))
	equal(t, filepath.Join(s.Dir, "dev.20000101-000000.json"), removed[0].Path)
	equal(t, 8, len(files(t, s)))

	f, err := s.Snapshots().Newest()
	if err != nil {
		t.Fatal(err)
	}

	equal(t, filepath.Join(s.Dir, "dev.20000104-000000.json"), f.Path)
}

// TestRefusedSnapshots: a state that could not be restored is not kept.
func TestRefusedSnapshots(t *testing.T) {
	_, s, _ := guarded(t)

	for text, want := range map[string]string{
		"":               "it is not an exported state: unexpected end of JSON input",
		"{}":             "it is not an exported state, or of an unsupported version of pulumi: its version is 0",
		`{"version": 5}`: "it is not an exported state, or of an unsupported version of pulumi: its version is 5",
		string(
			stateOf("prod", 0,
				"vm")): "it holds vm, which belongs to stack prod of project talos-proxmox; this is stack dev of project " +
			"talos-proxmox. If the stack was renamed since, rename it back ('pulumi stack rename prod --stack dev'), restore " +
			"with --stack prod, and rename it again",
		strings.ReplaceAll(string(stateOf("dev", 0, "vm")), "::talos-proxmox::", "::web::"): "it holds vm, which belongs " +
			"to stack dev of project web; this is stack dev of project talos-proxmox",
		`{"version": 3, "deployment": {"resources": [{"urn": "urn:pulumi:dev::talos-proxmox::a:b:C::x", "outputs": {"list": [
			{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": "\"x\""}]}}]}}`: "it holds secrets in plain text: it was exported with --show-secrets",
	} {
		_, err := s.Snapshots().write(t.Context(), "", []byte(text))
		fails(t, want, err)
	}

	encrypted := `{"version": 3, "deployment": {"resources": [{"urn": "urn:pulumi:dev::talos-proxmox::a:b:C::x", "outputs": {
		"list": [{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:x"}],
		"map": {"plaintext": "a key of this name is no secret"}}}]}}`
	if _, err := s.Snapshots().write(t.Context(), "", []byte(encrypted)); err != nil {
		t.Error(err)
	}

	equal(t, 1, len(files(t, s)))
}

// TestRun: the snapshot comes first, and without it nothing runs.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		change func(*fake, *State)
		want   string
		asked  []string
		ran    []string
	}{
		{name: "up", args: []string{"up", "--yes"}, asked: []string{"export"}, ran: []string{"up", "--yes"}},
		{
			name: "state", args: []string{"state", "delete", "urn"}, asked: []string{"export"},
			ran: []string{"state", "delete", "urn"},
		},
		{
			name: "no export", args: []string{"destroy"},
			change: func(f *fake, _ *State) { f.fail["export"] = errors.New("no backend") },
			want:   "pulumi destroy was not run, because there is no snapshot: exporting the state: no backend",
			asked:  []string{"export"},
		},
		{
			name: "no directory", args: []string{"up"}, change: func(_ *fake, s *State) { s.Dir = "/dev/null/x" },
			want: "pulumi up was not run, because there is no snapshot: keeping the state in /dev/null/x: mkdir " +
				"/dev/null: not a " +
				"directory",
			asked: []string{"export"},
		},
		{
			name: "refresh", args: []string{"refresh", "--yes"}, asked: []string{"export", "answers"},
			ran: []string{"refresh", "--yes"},
		},
		{
			name: "refresh in the dark", args: []string{"refresh"},
			change: func(f *fake, _ *State) { f.fail["answers"] = errors.New("no answer") },
			want: "pulumi refresh was not run, because a refresh would forget resources that do not answer: no " +
				"answer",
			asked: []string{"export", "answers"},
		},
		{
			name: "up with a refresh in the dark", args: []string{"up", "-r"},
			change: func(f *fake, _ *State) { f.fail["answers"] = errors.New("no answer") },
			want:   "pulumi up was not run, because a refresh would forget resources that do not answer: no answer",
			asked:  []string{"export", "answers"},
		},
		{
			name: "up with one among other options", args: []string{"up", "-yr"}, asked: []string{"export", "answers"},
			ran: []string{"up", "-yr"},
		},
		{
			name: "up with a message", args: []string{"up", "-ymrefresh"}, asked: []string{"export"},
			ran: []string{"up", "-ymrefresh"},
		},
		{
			name: "another stack among other options", args: []string{"up", "-ys", "prod"},
			want: "-ys would make pulumi use another stack than the one whose state was kept: write it before run",
		},
		{
			name: "up with one", args: []string{"up", "--refresh"}, asked: []string{"export", "answers"},
			ran: []string{"up", "--refresh"},
		},
		{
			name: "up without one", args: []string{"up", "--refresh=false"}, asked: []string{"export"},
			ran: []string{"up", "--refresh=false"},
		},
		{
			name: "up in a project that refreshes", args: []string{"up"}, asked: []string{"export", "answers"},
			change: func(f *fake, _ *State) { f.refreshes = true }, ran: []string{"up"},
		},
		{
			name: "up without one in a project that refreshes", args: []string{"up", "--refresh=false"},
			change: func(f *fake, _ *State) { f.refreshes = true }, asked: []string{"export"},
			ran: []string{"up", "--refresh=false"},
		},
		{
			name: "nothing",
			want: "run takes one of pulumi's commands up, destroy, import, refresh, state; others change no state: use pulumi itself",
		},
		{
			name: "another command", args: []string{"preview"},
			want: "run takes one of pulumi's commands up, destroy, import, refresh, state; others change no state: use pulumi itself",
		},
		{
			name: "another stack", args: []string{"up", "--stack=prod"},
			want: "--stack=prod would make pulumi use another stack than the one whose state was kept: write it before run",
		},
		{
			name: "another stack, short", args: []string{"up", "-sprod"},
			want: "-sprod would make pulumi use another stack than the one whose state was kept: write it before run",
		},
		{
			name: "a part of a cluster", args: []string{"destroy", "--target=**::home-worker-1-vm"},
			want: "destroy takes a whole cluster (given: --target=**::home-worker-1-vm): of a released cluster it would " +
				"delete nodes without a drain, and without their leaving etcd; to remove a node, delete it from the stack " +
				"file and run 'ops run up'",
		},
		{
			name: "a part of a cluster, short", args: []string{"destroy", "-yx", "**::home-worker-1-*"},
			want: "destroy takes a whole cluster (given: -yx): of a released cluster it would delete nodes without a drain, " +
				"and without their leaving etcd; to remove a node, delete it from the stack file and run 'ops run up'",
		},
		{
			name: "one node", args: []string{"up", "--target", "**::home-worker-1-*"}, asked: []string{"export"},
			ran: []string{"up", "--target", "**::home-worker-1-*"},
		},
		{
			name: "all but protected", args: []string{"destroy", "--exclude-protected"}, asked: []string{"export"},
			ran: []string{"destroy", "--exclude-protected"},
		},
		{
			name: "flags that only begin alike", args: []string{"up", "--skip-preview"}, asked: []string{"export"},
			ran: []string{"up", "--skip-preview"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, s, _ := guarded(t)
			if c.change != nil {
				c.change(f, &s)
			}

			var ran []string

			err := s.Run(t.Context(), c.args, func(_ context.Context, args ...string) error {
				equal(t, 1, len(files(t, s)))

				ran = args

				return nil
			})
			if c.want != "" {
				fails(t, c.want, err)
			} else if err != nil {
				t.Error(err)
			}

			equal(t, c.asked, f.asked)
			equal(t, c.ran, ran)
		})
	}
}

// TestCheck: everything is looked at, and the preview only made when all is well.
func TestCheck(t *testing.T) {
	f, s, out := guarded(t)
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}

	equal(t, []string{"free", "export", "resources", "config", "preview"}, f.asked)
	equal(t, `lock           free
state          readable, 2 resources
configuration  valid
(what pulumi prints)
preview        2 to create, 1 to update
`, out.String())

	f, s, out = guarded(t)
	f.fail, f.pending = map[string]error{"free": ErrLocked, "config": errors.New("pools: is required")}, 1
	fails(t, "lock: "+ErrLocked.Error()+
		"\nstate: an update was interrupted: the result of 1 operation is unknown; run a refresh\n"+
		"configuration: pools: is required", s.Check(t.Context()))
	equal(t, []string{"free", "export", "resources", "config"}, f.asked)
	equal(t, "lock           FAILED\nstate          FAILED\nconfiguration  FAILED\n", out.String())
}

// TestBrief: what remains of an error of the CLI is its reason.
func TestBrief(t *testing.T) {
	for _, c := range [][2]string{
		{"plain", "plain"},
		{
			"could not import stack: exit status 1\ncode: 1\nstdout: x\nstderr: error: no stack\n\n",
			"could not import stack: exit status 1: no stack",
		},
		{"failed: exit status 1\ncode: 1\nstdout: \nstderr: \n", "failed: exit status 1: no reason given"},
		{
			"failed: exit status 1\ncode: 1\nstdout: \nstderr: error: This is a bug!\n====\nGo Version: go1\nError:   " +
				"snapshot integrity failure\n\nStack Trace:\n",
			"failed: exit status 1: snapshot integrity failure",
		},
	} {
		fails(t, c[1], brief(errors.New(c[0])))
	}

	if brief(nil) != nil {
		t.Error("no error became one")
	}
}

// TestSame: the organization of a stack may be left out.
func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"dev", "dev", true},
		{"acme/dev", "dev", true},
		{"dev", "acme/dev", true},
		{"acme/dev", "acme/dev", true},
		{"acme/dev", "other/dev", false},
		{"dev", "prod", false},
		{"acme/dev", "prod", false},
	} {
		equal(t, c.want, same(c.a, c.b))
	}
}

// TestNewest passes over what cannot be restored.
func TestNewest(t *testing.T) {
	_, s, _ := guarded(t)

	_, err := s.Snapshots().Newest()
	fails(t, "there is no snapshot of stack dev in "+s.Dir+" that holds resources", err)

	for name, text := range map[string][]byte{
		"dev.20000101-000000.json":             stateOf("dev", 0, "a"),
		"dev.20000102-000000.json":             stateOf("dev", 0, "a", "b"),
		"dev.20000103-000000.json":             stateOf("dev", 0),
		"dev.20000104-000000.json":             stateOf("prod", 0, "a"),
		"dev.pre-restore.20000105-000000.json": stateOf("dev", 0, "a"),
	} {
		write(t, filepath.Join(s.Dir, name), text)
	}

	f, err := s.Snapshots().Newest()
	if err != nil {
		t.Fatal(err)
	}

	equal(t, filepath.Join(s.Dir, "dev.20000102-000000.json"), f.Path)

	all, err := s.Snapshots().List()
	if err != nil {
		t.Fatal(err)
	}

	var listed []string
	for _, f := range all {
		listed = append(listed, fmt.Sprint(filepath.Base(f.Path), " ", f.Taken.Format("Jan 2"), " ", len(f.Deployment.URNs),
			" ", f.PreRestore, " ", f.Err == nil))
	}

	equal(t, []string{
		"dev.pre-restore.20000105-000000.json Jan 5 1 true true",
		"dev.20000104-000000.json Jan 4 0 false false",
		"dev.20000103-000000.json Jan 3 0 false true",
		"dev.20000102-000000.json Jan 2 2 false true",
		"dev.20000101-000000.json Jan 1 1 false true",
	}, listed)
}

// TestStackNames: the snapshots of a stack with this name would be another one's.
func TestStackNames(t *testing.T) {
	_, s, _ := guarded(t)
	s.Stack = named{s.Stack, "dev.pre-restore"}

	_, err := s.Snapshot(t.Context())
	fails(t, `stack dev.pre-restore: snapshots of a stack whose name ends with ".pre-restore" cannot be told apart`, err)
}

type named struct {
	Stack
	name string
}

func (n named) Name() string { return n.name }
