package tests

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// workflows are those of the repository, by their paths from the project.
func workflows(t *testing.T) map[string]*actionlint.Workflow {
	t.Helper()

	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	require.NoError(t, err)

	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)

	found := map[string]*actionlint.Workflow{}

	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)

		complaints, err := linter.Lint(path, text, nil)
		require.NoError(t, err)
		assert.Empty(t, complaints)

		w, problems := actionlint.Parse(text)
		require.Empty(t, problems)

		found[filepath.Base(path)] = w
	}

	return found
}

// TestWorkflows: they may only read, what they use cannot change under them, no text of an event reaches a shell, and
// the commands on this repository are there.
func TestWorkflows(t *testing.T) {
	t.Parallel()

	pinned := regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40}$`)

	for name, w := range workflows(t) {
		require.NotNil(t, w.Permissions, name)
		require.Nil(t, w.Permissions.All, name)
		require.Len(t, w.Permissions.Scopes, 1, name)
		assert.Equal(t, "read", w.Permissions.Scopes["contents"].Value.Value, name)

		for _, event := range w.On {
			assert.NotEqual(t, "pull_request_target", event.EventName(), name)
		}

		for _, job := range w.Jobs {
			assert.Nil(t, job.Permissions, "%s: %s asks for more", name, job.ID.Value)
			assert.NotNil(t, job.TimeoutMinutes, "%s: %s", name, job.ID.Value)

			for _, step := range job.Steps {
				switch run := step.Exec.(type) {
				case *actionlint.ExecAction:
					assert.Regexp(t, pinned, run.Uses.Value, name)
				case *actionlint.ExecRun:
					assert.NotContains(t, run.Run.Value, "${{", "%s: a shell would read what the expression holds", name)
					checkRun(t, name, run.Run.Value)
				}
			}
		}
	}
}

// checkRun holds that what a step runs is in the repository, or of a stated version.
func checkRun(t *testing.T, name, script string) {
	t.Helper()

	for line := range strings.Lines(script) {
		switch words := strings.Fields(line); {
		case len(words) == 0:
		case strings.HasPrefix(words[0], ".ci/"):
			assert.FileExists(t, filepath.Join(root, words[0]), name)
		case words[0] == "go" && strings.HasPrefix(words[2], "./"):
			assert.Empty(t, checkGo(words[1:]), "%s: %s", name, line)
		case words[0] == "go":
			assert.Regexp(t, `@v\d+\.\d+\.\d+$`, words[2], name)
		}
	}
}

// TestApproval: a stack is updated from main alone, after its preview and an approval, and a stranger's pull request
// runs nowhere with secrets.
func TestApproval(t *testing.T) {
	t.Parallel()

	all := workflows(t)
	jobs := all["deploy.yaml"].Jobs

	up := jobs["up"]
	require.NotNil(t, up.Environment)
	assert.Equal(t, "up", up.Environment.Name.Value)
	assert.Equal(t, "vars.PULUMI_STACK != '' && github.event_name == 'push'", up.If.Value)
	require.Len(t, up.Needs, 1)
	assert.Equal(t, "preview", up.Needs[0].Value)
	assert.False(t, up.Concurrency.CancelInProgress.Value)

	preview := jobs["preview"]
	assert.Equal(t, up.If.Value, preview.If.Value)
	assert.Equal(t, "preview", preview.Environment.Name.Value)

	// The author of a pull request writes its workflow: it gets nothing.
	assert.Nil(t, jobs["plan"].Environment)
	assert.Nil(t, jobs["plan"].Env)
	assert.Equal(t, "ubuntu-24.04", jobs["plan"].RunsOn.Labels[0].Value)
	assert.Equal(t, "vars.PULUMI_STACK != '' && github.event_name == 'pull_request'", jobs["plan"].If.Value)

	for _, job := range jobs {
		for _, step := range job.Steps {
			if action, ok := step.Exec.(*actionlint.ExecAction); ok && strings.Contains(action.Uses.Value, "upload-artifact") {
				assert.Regexp(t, `\.age$`, action.Inputs["path"].Value.Value, "what every reader of the repository can fetch")
			}

			if run, ok := step.Exec.(*actionlint.ExecRun); ok {
				assert.NotRegexp(t, `curl.*\| *(ba)?sh`, run.Run.Value)
			}
		}
	}

	secrets, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "check.yaml"))
	require.NoError(t, err)
	assert.NotContains(t, string(secrets), "secrets.")
}

// TestPreviewDigest: the digest is of what an update does to resources, whatever the order, and not of who asks.
func TestPreviewDigest(t *testing.T) {
	t.Parallel()

	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("there is no jq")
	}

	const (
		same     = `{"op":"same","urn":"urn:pulumi:s::p::t::same","newState":{"inputs":{"a":1}}}`
		create   = `{"op":"create","urn":"urn:pulumi:s::p::t::a","newState":{"inputs":{"cores":2,"smbios":{"uuid":"1"},"description":"1"}}}`
		again    = `{"op":"create","urn":"urn:pulumi:s::p::t::a","newState":{"inputs":{"cores":2,"smbios":{"uuid":"2"},"description":"2"}}}`
		other    = `{"op":"create","urn":"urn:pulumi:s::p::t::a","newState":{"inputs":{"cores":4}}}`
		remove   = `{"op":"delete","urn":"urn:pulumi:s::p::t::b","oldState":{}}`
		provider = `{"op":"update","urn":"urn:pulumi:s::p::pulumi:providers:proxmoxve::x","newState":{"inputs":{}}}`
	)

	digest := func(steps ...string) string {
		dir := t.TempDir()
		script := "#!/bin/sh\ncat <<'END'\n{\"steps\":[" + strings.Join(steps, ",") + "]}\nEND\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pulumi"), []byte(script), 0o700)) //nolint:gosec // it is run

		command := exec.CommandContext(t.Context(), filepath.Join(root, ".ci", "preview-digest"), "dev")
		command.Env = append(os.Environ(), "PATH="+dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
		out, err := command.Output()
		require.NoError(t, err)
		require.Regexp(t, "^[0-9a-f]{64}\n$", string(out))

		return string(out)
	}

	approved := digest(create, remove)
	assert.Equal(t, approved, digest(remove, provider, create, same))
	assert.Equal(t, approved, digest(again, remove), "a new VM is given another identity by each preview")
	assert.NotEqual(t, approved, digest(create))
	assert.NotEqual(t, approved, digest(other, remove))
}

// TestInstallPulumi: without its checksum, nothing is downloaded.
func TestInstallPulumi(t *testing.T) {
	t.Parallel()

	command := exec.CommandContext(t.Context(), filepath.Join(root, ".ci", "install-pulumi"))
	command.Env = append(os.Environ(), "PULUMI_VERSION=3.259.0", "PULUMI_SHA256=", "RUNNER_TEMP="+t.TempDir())
	out, err := command.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "PULUMI_SHA256 is not set: set the variable to the checksum of pulumi-v3.259.0-linux-x64.tar.gz")
}
