package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// TestRestore follows the five steps, and breaks off at each.
func TestRestore(t *testing.T) {
	const kept = "dev.pre-restore.20000101-000000.json"

	broken := errors.New("broken")

	for _, c := range []struct {
		name   string
		file   []byte
		change func(*fake)
		want   string
		asked  []string
		kept   bool
		state  []string
	}{
		{
			name: "restored", asked: []string{"free", "export", "import", "resources", "preview"}, kept: true,
			state: []string{"old"},
		},
		{
			name: "no file", file: []byte{},
			want: "{file} is not a snapshot to restore: it is not an exported state: unexpected end of JSON input",
		},
		{
			name: "another stack's", file: stateOf("prod", 0, "vm"),
			want: "{file} is not a snapshot to restore: it holds vm, which belongs to stack prod of project talos-proxmox; this " +
				"is stack dev of project talos-proxmox. If the stack was renamed since, rename it back ('pulumi stack rename " +
				"prod --stack dev'), restore with --stack prod, and rename it again",
		},
		{name: "empty", file: stateOf("dev", 0), want: "{file} holds no resource: restoring it would forget everything"},
		{
			name: "locked", change: func(f *fake) { f.fail["free"] = ErrLocked },
			want: "nothing was restored: " + ErrLocked.Error(), asked: []string{"free"},
		},
		{
			name: "the present state cannot be kept", change: func(f *fake) { f.fail["export"] = broken },
			want: "nothing was restored: exporting the state: broken", asked: []string{"free", "export"},
		},
		{
			name: "not imported", change: func(f *fake) { f.fail["import"] = broken }, kept: true,
			want: "importing {file}: broken", asked: []string{"free", "export", "import"},
		},
		{
			name: "not readable", change: func(f *fake) { f.fail["resources"] = broken }, kept: true, state: []string{"old"},
			want:  "the state is not what was restored: broken; to go back, restore {dir}/" + kept,
			asked: []string{"free", "export", "import", "resources"},
		},
		{
			name: "not the same", change: func(f *fake) { f.lost = "old" }, kept: true, state: []string{},
			want:  "the state is not what was restored: it holds 0 resources, the snapshot 1 resource; to go back, restore {dir}/" + kept,
			asked: []string{"free", "export", "import", "resources"},
		},
		{
			name: "no preview", change: func(f *fake) { f.fail["preview"] = broken }, kept: true, state: []string{"old"},
			want:  "the state is restored, the preview failed: broken; to go back, restore {dir}/" + kept,
			asked: []string{"free", "export", "import", "resources", "preview"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, s, out := guarded(t)
			if c.change != nil {
				c.change(f)
			}

			if c.file == nil {
				c.file = stateOf("dev", 0, "old")
			}

			chosen := write(t, filepath.Join(t.TempDir(), "chosen.json"), c.file)

			synctest.Test(t, func(t *testing.T) {
				err := s.Restore(t.Context(), chosen)
				if c.want != "" {
					fails(t, strings.NewReplacer("{file}", chosen, "{dir}", s.Dir).Replace(c.want), err)
				} else if err != nil {
					t.Error(err)
				}
			})

			if c.state == nil {
				c.state = []string{"a", "b"}
			}

			equal(t, c.asked, f.asked)
			equal(t, fmt.Sprint(c.state), fmt.Sprint(f.present))

			if c.kept {
				equal(t, []string{kept}, files(t, s))
			} else {
				equal(t, []string{}, files(t, s))
			}

			if c.want == "" {
				equal(t, fmt.Sprintf(`1. no operation runs on the stack
2. the present state is kept in %s/%s, 2 resources
3. imported %s
4. the state is readable, 1 resource
5. preview
(what pulumi prints)
restored; an update would change: 2 to create, 1 to update. Make sure that you expect these changes before you run an update
`, s.Dir, kept, chosen), out.String())
			}
		})
	}
}

// TestRestoreBroken: a state that cannot be read is what a restore is for. It is kept as it is.
func TestRestoreBroken(t *testing.T) {
	f, s, out := guarded(t)
	f.broken = []byte("half of a st")
	chosen := write(t, filepath.Join(t.TempDir(), "chosen.json"), stateOf("dev", 0, "old"))

	synctest.Test(t, func(t *testing.T) {
		if err := s.Restore(t.Context(), chosen); err != nil {
			t.Error(err)
		}

		_, err := s.Snapshot(t.Context())
		fails(t, "keeping the state in "+s.Dir+
			": it is not an exported state: invalid character 'h' looking for beginning of value", err)
	})

	const kept = "dev.pre-restore.20000101-000000.json"

	equal(t, []string{"old"}, f.present)
	equal(t, []string{kept}, files(t, s))

	if want := "2. the present state is kept in " + s.Dir + "/" + kept +
		"; it is broken: it is not an exported state: "; !strings.Contains(out.String(), want) {
		t.Errorf("want: %s\ngot:  %s", want, out)
	}

	text, err := os.ReadFile(filepath.Join(s.Dir, kept))
	if err != nil {
		t.Fatal(err)
	}

	equal(t, string(f.broken), string(text))
}
