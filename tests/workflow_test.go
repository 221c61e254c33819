package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
			If, Run, Uses string
			With          map[string]string
		}
	}
}

// pinnedTool builds a command of the module tests/tools, and returns its path.
func pinnedTool(t *testing.T, name string) string {
	t.Helper()

	build := exec.CommandContext(t.Context(), "go", "tool", "-n", name)
	build.Dir, build.Env = "tools", append(os.Environ(), "GOWORK=off")
	path, err := build.Output()
	require.NoError(t, err, name)

	return strings.TrimSpace(string(path))
}

// linksTo is a directory with commands of these names, to be put into a PATH: links to the files.
func linksTo(t *testing.T, files map[string]string) string {
	t.Helper()

	dir := t.TempDir()
	for name, file := range files {
		require.NoError(t, os.Symlink(file, filepath.Join(dir, name)))
	}

	return dir
}

// workflows are those of the repository, by their names. The linter of GitHub's workflows is content with them.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()

	directory, err := filepath.Abs(filepath.Join(root, ".github", "workflows"))
	require.NoError(t, err)

	paths, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)

	lint := exec.CommandContext(t.Context(), pinnedTool(t, "actionlint"),
		append([]string{"-shellcheck=", "-pyflakes="}, paths...)...)
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
		words := strings.Fields(line)
		if at := slices.Index(words, "go"); at > 0 && words[0] == "sudo" {
			words = words[at:]
		}

		switch {
		case len(words) == 0:
		case strings.HasPrefix(words[0], ".ci/"):
			assert.FileExists(t, filepath.Join(root, words[0]), name)
		case words[0] == "go" && (words[1] == "test" || strings.HasPrefix(words[2], "./")):
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

	// Snapshots in plain text do not stay on a runner, unless there are no others.
	last := up.Steps[len(up.Steps)-1]
	assert.Contains(t, last.Run, "rm -rf state-backups etcd-backups")
	assert.Equal(t, "always() && steps.encrypt.outcome == 'success' && steps.keep.outputs.artifact-id != ''", last.If)

	secrets, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "check.yaml"))
	require.NoError(t, err)
	assert.NotContains(t, string(secrets), "secrets.")
}

// TestPreviewDigest: the digest is of what an update does to resources, whatever the order, and not of who asks. The same
// run shows it.
func TestPreviewDigest(t *testing.T) {
	t.Parallel()

	jq := pinnedTool(t, "gojq")

	const (
		same     = `{"op":"same","urn":"urn:pulumi:s::p::t::same","new":{"inputs":{"a":1}}}`
		create   = `{"op":"create","urn":"urn:pulumi:s::p::t::a","new":{"inputs":{"cores":2,"smbios":{"uuid":"1"},"description":"1"}}}`
		again    = `{"op":"create","urn":"urn:pulumi:s::p::t::a","new":{"inputs":{"cores":2,"smbios":{"uuid":"2"},"description":"2"}}}`
		other    = `{"op":"create","urn":"urn:pulumi:s::p::t::a","new":{"inputs":{"cores":4}}}`
		remove   = `{"op":"delete","urn":"urn:pulumi:s::p::t::b","old":{}}`
		provider = `{"op":"update","urn":"urn:pulumi:s::p::pulumi:providers:proxmoxve::x","new":{"inputs":{}}}`
		logged   = "while [ \"$1\" != --event-log ]; do shift; done\n"
	)

	digest := func(steps ...string) string {
		dir := linksTo(t, map[string]string{"jq": jq})
		events := `{"sequence":1,"stdoutEvent":{}}` + "\n"

		for _, step := range steps {
			events += `{"resourcePreEvent":{"metadata":` + step + "}}\n"
		}

		writeScript(t, dir, "pulumi", logged+"cat > \"$2\" <<'END'\n"+events+"END\necho shown\n")

		return previewDigest(t, "dev", ".", append(os.Environ(), pathWith(dir)))
	}

	approved := digest(create, remove)
	assert.Equal(t, approved, digest(remove, provider, create, same))
	assert.Equal(t, approved, digest(again, remove), "a new VM is given another identity by each preview")
	assert.NotEqual(t, approved, digest(create))
	assert.NotEqual(t, approved, digest(other, remove))

	bin := linksTo(t, map[string]string{"jq": jq})
	writeScript(t, bin, "pulumi", "echo no such key\nexit 255\n")

	refused := exec.CommandContext(t.Context(), filepath.Join(root, ".ci", "preview-digest"), "dev")
	refused.Env = append(os.Environ(), pathWith(bin))
	out, err := refused.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, "no such key\n", string(out))
}

// previewDigest runs the command of the workflow in a project.
func previewDigest(t *testing.T, stack, project string, environ []string) string {
	t.Helper()

	path, err := filepath.Abs(filepath.Join(root, ".ci", "preview-digest"))
	require.NoError(t, err)

	var said bytes.Buffer

	command := exec.CommandContext(t.Context(), path, stack)
	command.Dir, command.Env, command.Stderr = project, environ, &said
	out, err := command.Output()
	require.NoError(t, err, said.String())
	require.Regexp(t, "^[0-9a-f]{64}\n$", string(out))
	require.NotEmpty(t, said.String(), "what is approved is shown")

	return string(out)
}

// TestPreviewDigestOfTokens: a preview with the token that may only read approves what an update with the other token
// does, and no other update.
func TestPreviewDigestOfTokens(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	stack := compiled(t, r, "pipeline")
	project := stack.Workspace().WorkDir()

	require.NoError(t, os.Mkdir(filepath.Join(project, "policy"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(project, "policy", "PulumiPolicy.yaml"),
		[]byte("runtime: { name: go, options: { binary: "+compilePolicies(t)+" } }\n"), 0o600))

	bin := linksTo(t, map[string]string{"jq": pinnedTool(t, "gojq"), "pulumi": r.Engine().CLI()})
	digest := func() string {
		return previewDigest(t, "pipeline", project,
			append(r.Backend.Environ(), pathWith(bin)))
	}

	all := r.Lab.Credentials()
	mayRead(t, r)

	creation := digest()
	login(t, stack, limitedToken, limitedSecret)
	assert.Equal(t, creation, digest(), "a new stack")
	login(t, stack, all.TokenID, all.TokenSecret)

	up(t, stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	set(t, stack, "pools.worker.count", "2")
	set(t, stack, "pools.control.memoryMiB", "5120")

	approved := digest()
	assert.NotEqual(t, creation, approved)

	login(t, stack, limitedToken, limitedSecret)
	assert.Equal(t, approved, digest(), "another token")

	set(t, stack, "pools.worker.count", "3")
	assert.NotEqual(t, approved, digest(), "another update")
}

// TestInstallPulumi: without its checksum, nothing is downloaded; what has another checksum is not installed.
func TestInstallPulumi(t *testing.T) {
	t.Parallel()

	// curl, as far as the command asks for it: a release with one file, the same each time.
	bin := t.TempDir()
	writeScript(t, bin, "curl", `while [ "$1" != -o ]; do shift; done
echo release > "${2%/*}/pulumi" && touch -d @0 "${2%/*}/pulumi" && tar -czf "$2" -C "${2%/*}" pulumi && rm "${2%/*}/pulumi"
sha256sum "$2" | cut -d ' ' -f 1 > "$SUM"
`)

	dir := t.TempDir()
	sum, paths := filepath.Join(dir, "sum"), filepath.Join(dir, "paths")
	installed := filepath.Join(dir, "pulumi-3.259.0")

	install := func(checksum string) (string, error) {
		command := exec.CommandContext(t.Context(), filepath.Join(root, ".ci", "install-pulumi"))
		command.Env = append(os.Environ(), "PULUMI_VERSION=3.259.0", "PULUMI_SHA256="+checksum, "RUNNER_TEMP="+dir,
			"GITHUB_PATH="+paths, "SUM="+sum, pathWith(bin))
		out, err := command.CombinedOutput()

		return string(out), err
	}

	out, err := install("")
	require.Error(t, err)
	assert.Contains(t, out, "PULUMI_SHA256 is not set: set the variable to the checksum of pulumi-v3.259.0-linux-x64.tar.gz")
	assert.NoFileExists(t, sum, "nothing is downloaded")

	out, err = install(strings.Repeat("0", 64))
	require.Error(t, err)
	assert.Contains(t, out, "pulumi-v3.259.0-linux-x64.tar.gz does not have the checksum PULUMI_SHA256: it is not installed")
	assert.NoFileExists(t, filepath.Join(installed, "pulumi"))
	assert.NoFileExists(t, paths)

	out, err = install(strings.TrimSpace(string(readFile(t, sum))))
	require.NoError(t, err, out)
	assert.FileExists(t, filepath.Join(installed, "pulumi"))
	assert.Equal(t, installed+"/pulumi\n", string(readFile(t, paths)))
}
