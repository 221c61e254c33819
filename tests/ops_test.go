package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
	opsstate "talos-proxmox/stacks/ops/state"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/rehearsal"
)

// guarded is the way to the rehearsed stack's state, with what it says.
func guarded(t *testing.T, r *rehearsal.Rehearsal) (opsstate.State, *engine.Transcript) {
	t.Helper()

	stack, err := opsstate.On(t.Context(), r.Stack)
	require.NoError(t, err)

	out := newOutput(t)

	return opsstate.State{Stack: stack, Dir: filepath.Join(t.TempDir(), "state-backups"), Out: out}, out
}

// TestRestore takes a snapshot, changes the stack, and goes back and forth. Nothing but state changes.
func TestRestore(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	s, out := guarded(t, r)

	empty, err := s.Snapshot(t.Context())
	require.NoError(t, err, "a stack that was never updated has a state too")

	outputs := upResult(t, r.Stack).Outputs
	one, urnsOfOne := snapshot(t, s), urns(t, r.Stack)

	t.Run("a snapshot holds no secret", func(t *testing.T) {
		text, err := os.ReadFile(one)
		require.NoError(t, err)

		secrets := privateKeys(t, outputs["kubeconfig"].Value.(string), outputs["talosconfig"].Value.(string))
		secrets["the API token"] = r.Lab.Credentials().TokenSecret

		for name, secret := range secrets {
			assert.NotContains(t, string(text), secret, name)
		}
	})

	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	require.NoError(t, s.Check(t.Context()))

	deployed, urnsOfTwo := r.Lab.World().Snapshot(), urns(t, r.Stack)
	resources := fmt.Sprintf("%d resources", len(urnsOfTwo))

	assert.Contains(t, out.String(), "lock           free\nstate          readable, "+resources+"\nconfiguration  valid\n")
	assert.Contains(t, out.String(), "preview        nothing\n")

	t.Run("what is no snapshot of this stack is refused", func(t *testing.T) {
		text, err := os.ReadFile(one)
		require.NoError(t, err)

		for name, wrong := range map[string]string{
			"another stack's":         strings.ReplaceAll(string(text), "urn:pulumi:dev::", "urn:pulumi:prod::"),
			"another project's":       strings.ReplaceAll(string(text), "::talos-proxmox::", "::other::"),
			"half of one":             string(text[:len(text)/2]),
			"a stack file":            "config: {}\n",
			"with secrets to be seen": cli(t, r, "stack", "export", "--show-secrets"),
		} {
			file := filepath.Join(t.TempDir(), "wrong.json")
			require.NoError(t, os.WriteFile(file, []byte(wrong), 0o600))
			assert.ErrorContains(t, s.Restore(t.Context(), file), "wrong.json is not a snapshot to restore: it ", name)
		}

		assert.ErrorContains(t, s.Restore(t.Context(), filepath.Join(s.Dir, "dev.20000101-000000.json")), "no such file")
		assert.ErrorContains(t, s.Restore(t.Context(), empty.Path), "holds no resource")
		assert.Equal(t, urnsOfTwo, urns(t, r.Stack))
	})

	t.Run("a state that contradicts itself", func(t *testing.T) {
		good := snapshot(t, s)

		// The first resource, which others belong to, is gone.
		file := filepath.Join(r.Backend.Dir(), "state", ".pulumi", "stacks", config.Project, "dev.json")
		text, err := os.ReadFile(file)
		require.NoError(t, err)

		var kept map[string]any
		require.NoError(t, json.Unmarshal(text, &kept))

		latest := kept["checkpoint"].(map[string]any)["latest"].(map[string]any)
		latest["resources"] = latest["resources"].([]any)[1:]
		text, err = json.Marshal(kept)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))

		err = s.Check(t.Context())
		require.ErrorContains(t, err,
			"state: pulumi stack --output json: fetching stack: snapshot integrity failure; refusing to use it: ")
		require.NotContains(t, err.Error(), "goroutine")

		require.NoError(t, s.Restore(t.Context(), good))
		require.NoError(t, s.Check(t.Context()))
		assert.Equal(t, urnsOfTwo, urns(t, r.Stack))
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
	})

	t.Run("a note next to it that was not written", func(t *testing.T) {
		file := filepath.Join(r.Backend.Dir(), "state", ".pulumi", "stacks", config.Project, "dev.json.attrs")
		require.NoFileExists(t, file, "this backend writes none, others do")
		require.NoError(t, os.WriteFile(file, nil, 0o600))

		_, err := s.Snapshot(t.Context())
		require.EqualError(t, err, "exporting the state: pulumi stack export: failed to load checkpoint: EOF: pulumi was "+
			"killed while it wrote the state, which is "+
			"whole: remove <stack>.json.attrs next to it, in .pulumi/stacks/<project> of the local backend")

		// As it says.
		require.NoError(t, os.Remove(file))
		snapshot(t, s)
	})

	t.Run("back to one worker, in state only", func(t *testing.T) {
		require.NoError(t, s.Restore(t.Context(), one))
		assert.Equal(t, urnsOfOne, urns(t, r.Stack))
		assert.Contains(t, out.String(),
			"restored; an update would change: 3 to create. Make sure that you expect these changes before you run "+
				"an update\n")
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
	})

	t.Run("and forth, with what the restore has kept", func(t *testing.T) {
		kept := regexp.MustCompile(`kept in (\S+), `+resources).FindAllStringSubmatch(out.String(), -1)
		require.NotEmpty(t, kept)
		require.NoError(t, s.Restore(t.Context(), kept[len(kept)-1][1]))
		assert.Equal(t, urnsOfTwo, urns(t, r.Stack))
		requireNoChange(t, r.Stack)
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
	})
}

func snapshot(t *testing.T, s opsstate.State) string {
	t.Helper()

	f, err := s.Snapshot(t.Context())
	require.NoError(t, err)

	return f.Path
}

// TestLocked looks at a stack that is being updated: it can be looked at, and its state cannot be replaced.
func TestLocked(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	s, out := guarded(t, r)

	looked := make(chan struct{})
	end := sync.OnceFunc(func() { close(looked) })

	defer end()

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`^POST .*/clone$`), Kind: journal.Interfere,
		Before: func(journal.Entry) { <-looked },
	})

	first := snapshot(t, s)
	text, err := os.ReadFile(first)
	require.NoError(t, err)

	// Something that could be restored.
	full := filepath.Join(t.TempDir(), "full.json")
	require.NoError(t, os.WriteFile(full, bytes.Replace(text, []byte(`"manifest"`),
		[]byte(`"resources": [{"urn": "urn:pulumi:dev::talos-proxmox::a:b:C::x", "type": "a:b:C"}], "manifest"`), 1), 0o600))

	updated := make(chan error, 1)

	go func() {
		_, err := r.Stack.Up(context.WithoutCancel(t.Context()), optup.ProgressStreams(newOutput(t)))
		updated <- err
	}()

	require.Eventually(t, func() bool { return len(calls(r, "/clone")) > 0 }, wait, 10*time.Millisecond)

	const lock = "another operation runs on the stack (created by "

	locked := s.Restore(t.Context(), full)
	require.ErrorContains(t, locked, "nothing was restored: "+lock)
	require.ErrorContains(t, locked, "): wait for it, or, when none does any more, run: pulumi cancel --stack dev")
	require.ErrorContains(t, s.Stack.Import(t.Context(), text), lock,
		"the backend refuses too, should an update begin after the first look")

	f, err := s.Snapshot(t.Context())
	require.NoError(t, err)
	assert.Positive(t, f.Deployment.Pending)
	assert.Contains(t, out.String(), "under way")

	_, err = r.Stack.Up(t.Context())
	require.True(t, auto.IsConcurrentUpdateError(err), "%v", err)

	err = s.Check(t.Context())
	require.ErrorContains(t, err, "lock: "+lock)
	require.ErrorContains(t, err, "state: an update was interrupted")

	end()
	require.NoError(t, <-updated)
	require.NoError(t, s.Check(t.Context()))
	requireNoChange(t, r.Stack)
}

// TestOpsCommand uses the command as an operator does, in a project directory: a snapshot before each change, and no
// change without one.
func TestOpsCommand(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	stack := compiled(t, r, "compiled")
	project, binary := stack.Workspace().WorkDir(), compile(t, "./stacks/ops")
	backups := filepath.Join(project, "state-backups")
	// The last PATH wins.
	environ := append(r.Backend.Environ(),
		pathWith(filepath.Dir(r.Engine().CLI())))

	ops := func(args ...string) (string, error) {
		command := exec.CommandContext(t.Context(), binary, args...)
		command.Dir, command.Env = project, environ
		printed, err := command.CombinedOutput()

		return string(printed), err
	}

	succeed := func(args ...string) string {
		printed, err := ops(args...)
		require.NoError(t, err, printed)

		return printed
	}

	before := r.Lab.World().Snapshot()

	// A file in the place of the directory.
	require.NoError(t, os.WriteFile(backups, nil, 0o600))

	printed, err := ops("run", "up", "--yes")
	require.Error(t, err)
	assert.Contains(t, printed, "pulumi up was not run, because there is no snapshot: keeping the state in "+
		"state-backups: "+
		"mkdir state-backups: not a directory\n")
	assert.Equal(t, before, r.Lab.World().Snapshot())
	require.NoError(t, os.Remove(backups))

	assert.Regexp(t,
		`(?s)^snapshot state-backups/compiled\.\d{8}-\d{6}\.json, 0 resources\nUpdating \(compiled\):.* created\n`,
		succeed("run", "up", "--yes", "--skip-preview"))
	require.NoError(t, r.WaitReady(t.Context(), wait))

	printed, err = ops("run", "state", "delete", "urn:of:nothing", "--yes")
	require.Error(t, err)
	assert.Contains(t, printed, `"urn:of:nothing" is not a valid resource URN`)
	assert.NotContains(t, printed, "exit status", "pulumi has said what is wrong")

	deployed, resources := r.Lab.World().Snapshot(), strconv.Itoa(len(urns(t, stack)))

	// Nothing is forgotten because nothing answers.
	endpoint := r.Lab.Endpoint()
	set(t, stack, "proxmox.endpoint", "https://127.0.0.1:9")

	printed, err = ops("run", "refresh", "--yes")
	require.Error(t, err)
	assert.Contains(t, printed, "pulumi refresh was not run, because a refresh would forget resources that do not "+
		"answer: Proxmox "+
		"VE at https://127.0.0.1:9 cannot be reached: ")
	assert.Equal(t, resources, strconv.Itoa(len(urns(t, stack))))
	set(t, stack, "proxmox.endpoint", endpoint)

	// State is lost by mistake, and comes back.
	assert.Contains(t, succeed("run", "--keep", "2", "state", "delete", "--all", "--force", "--yes"),
		"removed  state-backups/compiled.")
	assert.Empty(t, state(t, stack).Resources)
	assert.Contains(t, succeed("restore", "newest"), "4. the state is readable, "+resources+" resources\n5. preview\n")
	assert.Contains(t, succeed("-C", project, "--stack", "compiled", "check"), "preview        nothing\n")
	assert.Equal(t, deployed, r.Lab.World().Snapshot())

	assert.Regexp(t, `^SNAPSHOT +TAKEN +RESOURCES +REMARK
compiled\.pre-restore\.\S+ +[-0-9]+ [:0-9]+ +0 +kept by a restore
compiled\.\S+ +[-0-9]+ [:0-9]+ +`+resources+` *
compiled\.\S+ +[-0-9]+ [:0-9]+ +`+resources+` *
compiled\.\S+ +[-0-9]+ [:0-9]+ +0 *
$`, succeed("list"), "those without resources do not count")

	printed, err = ops("--stack", "nobodys", "check")
	require.Error(t, err)
	assert.Contains(t, printed, "the backend has no stack nobodys of the project in "+project+
		": run: pulumi stack init nobodys\n")

	printed, err = ops("run", "destroy", "--yes", "--run-program")
	require.Error(t, err)
	assert.Contains(t, printed,
		"to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', "+
			"then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'")
	assert.Equal(t, deployed, r.Lab.World().Snapshot())

	// A reader that goes away ends nothing.
	set(t, stack, "lifecycle.teardown", "true")

	piped := exec.CommandContext(t.Context(), "sh", "-c", `"$0" run destroy --yes --run-program | head -n 1`, binary)
	piped.Dir, piped.Env = project, environ
	said, err := piped.CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Contains(t, string(said), "note: the output of pulumi is no longer read; pulumi continues until it has "+
		"finished\n")
	assert.Equal(t, before, r.Lab.World().Snapshot())
	succeed("check")
}

// TestLockedInTheCloud asks a backend that tells what runs: a stand-in for Pulumi Cloud, with no more of it than that
// takes.
func TestLockedInTheCloud(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	updated := 0 // when; unknown while an update runs
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		reply := map[string]any{}

		switch path := strings.TrimPrefix(q.URL.Path, "/api/"); {
		case path == "user":
			reply = map[string]any{"githubLogin": "acme", "organizations": []any{map[string]any{"githubLogin": "acme"}}}
		case path == "user/organizations/default":
			reply["Organization"] = "acme"
		case path == "user/stacks":
			reply["stacks"] = []any{map[string]any{
				"orgName": "acme", "projectName": config.Project, "stackName": "prod",
				"lastUpdate": updated,
			}}
		case path == "stacks/acme/talos-proxmox/prod/export":
			reply = map[string]any{"version": 3, "deployment": map[string]any{"manifest": map[string]any{}}}
		case path == "stacks/acme/talos-proxmox/prod":
			reply = map[string]any{"orgName": "acme", "projectName": config.Project, "stackName": "prod"}
		case path == "stacks/acme/talos-proxmox":
			w.WriteHeader(http.StatusConflict)
			reply = map[string]any{"code": http.StatusConflict, "message": "Stack 'prod' already exists"}
		case path != "capabilities":
			w.WriteHeader(http.StatusNotFound)
		}

		assert.NoError(t, json.NewEncoder(w).Encode(reply))
	}))
	t.Cleanup(cloud.Close)

	backend, err := e.NewBackend(t.TempDir())
	require.NoError(t, err)

	project := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(project, "Pulumi.yaml"),
		[]byte("name: "+config.Project+"\nruntime: go\n"), 0o600))

	env := backend.Env()
	env["PULUMI_BACKEND_URL"], env["PULUMI_ACCESS_TOKEN"] = cloud.URL, "pul-unknown"

	stack, err := opsstate.Open(t.Context(), project, "acme/prod", append(backend.Options(), auto.EnvVars(env))...)
	require.NoError(t, err)
	assert.Equal(t, "prod", stack.Name())
	require.ErrorIs(t, stack.Free(t.Context()), opsstate.ErrLocked)

	updated = 1
	require.NoError(t, stack.Free(t.Context()))

	s := opsstate.State{Stack: stack, Dir: t.TempDir(), Out: newOutput(t)}
	assert.Regexp(t, `/prod\.\d{8}-\d{6}\.json$`, snapshot(t, s))
}
