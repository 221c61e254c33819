package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// workflow is what a workflow of the repository says.
type workflow struct {
	On          map[string]any
	Permissions map[string]string
	Jobs        map[string]struct {
		If, Needs, Environment string
		RunsOn                 string `yaml:"runs-on"`
		TimeoutMinutes         int    `yaml:"timeout-minutes"`
		Permissions, Env       map[string]string
		Concurrency            struct {
			CancelInProgress *bool `yaml:"cancel-in-progress"`
		}
		Steps []struct {
			Run, Uses string
			With      map[string]string
		}
	}
}

// workflows are those of the repository, by their names. The linter of GitHub's workflows is content with them.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()

	directory, err := filepath.Abs(filepath.Join(root, ".github", "workflows"))
	require.NoError(t, err)

	paths, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)

	lint := exec.CommandContext(t.Context(), "go",
		append([]string{"tool", "actionlint", "-shellcheck=", "-pyflakes="}, paths...)...)
	lint.Dir, lint.Env = "actionlint", append(os.Environ(), "GOWORK=off")
	complaints, err := lint.CombinedOutput()
	require.NoError(t, err, string(complaints))

	found := map[string]workflow{}

	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)

		var w workflow
		require.NoError(t, yaml.Unmarshal(text, &w), path)

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
		assert.Equal(t, map[string]string{"contents": "read"}, w.Permissions, name)
		require.NotEmpty(t, w.On, name)
		assert.NotContains(t, w.On, "pull_request_target", name)
		require.NotEmpty(t, w.Jobs, name)

		for id, job := range w.Jobs {
			assert.Nil(t, job.Permissions, "%s: %s asks for more", name, id)
			assert.Positive(t, job.TimeoutMinutes, "%s: %s", name, id)
			require.NotEmpty(t, job.Steps, "%s: %s", name, id)

			for _, step := range job.Steps {
				if step.Run == "" {
					assert.Regexp(t, pinned, step.Uses, name)
				} else {
					assert.NotContains(t, step.Run, "${{", "%s: a shell would read what the expression holds", name)
					checkRun(t, name, step.Run)
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

	up, preview, plan := jobs["up"], jobs["preview"], jobs["plan"]
	assert.Equal(t, "up", up.Environment)
	assert.Equal(t, "vars.PULUMI_STACK != '' && github.event_name == 'push'", up.If)
	assert.Equal(t, "preview", up.Needs)
	require.NotNil(t, up.Concurrency.CancelInProgress)
	assert.False(t, *up.Concurrency.CancelInProgress)

	assert.Equal(t, up.If, preview.If)
	assert.Equal(t, "preview", preview.Environment)

	// The author of a pull request writes its workflow: it gets nothing.
	assert.Empty(t, plan.Environment)
	assert.Nil(t, plan.Env)
	assert.Equal(t, "ubuntu-24.04", plan.RunsOn)
	assert.Equal(t, "vars.PULUMI_STACK != '' && github.event_name == 'pull_request'", plan.If)

	for _, job := range jobs {
		for _, step := range job.Steps {
			if strings.Contains(step.Uses, "upload-artifact") {
				assert.Regexp(t, `\.age$`, step.With["path"], "what every reader of the repository can fetch")
			}

			assert.NotRegexp(t, `curl.*\| *(ba)?sh`, step.Run)
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
