package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"talos-proxmox/stacks"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
)

// languageProgram is an example program in another language, whose cluster has the configuration of a rehearsed stack.
type languageProgram struct {
	r     *rehearsal.Rehearsal
	stack auto.Stack
	// inputs are those of the component. A text of the form ${key} is a secret key of the program's configuration.
	inputs map[string]any
	// write brings the inputs into the program.
	write func()
}

// newLanguageProgram copies an example to a directory, with the package of this module as its page says.
func newLanguageProgram(t *testing.T, r *rehearsal.Rehearsal, example string) (p *languageProgram, dir string) {
	t.Helper()

	p, dir = &languageProgram{r: r, inputs: map[string]any{}}, t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "stacks/examples", example))))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "plugins"), 0o700))
	require.NoError(t, os.Rename(compile(t, "./stacks/provider"),
		filepath.Join(dir, "plugins", "pulumi-resource-talos-proxmox")))

	file := filepath.Join(t.TempDir(), "Pulumi.values.yaml")
	require.NoError(t, r.WriteStackFile(file))

	values, err := stacks.ReadValues(file)
	require.NoError(t, err)

	for key, text := range values {
		var value any = text
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			value = text
		}

		p.inputs[key] = value
	}

	config := auto.ConfigMap{}

	for key, secret := range r.Secrets() {
		name := strings.TrimPrefix(key, stacks.Project+":")
		p.inputs[name], config[name] = "${"+name+"}", secret
	}

	// Nodes are upgraded from it.
	p.input("cluster")["versions"].(map[string]any)["kubernetes"] = "v1.33.6"

	p.stack, err = r.Backend.LocalStack(t.Context(), dir, "test", config)
	require.NoError(t, err)

	return p, dir
}

func (p *languageProgram) input(name string) map[string]any { return p.inputs[name].(map[string]any) }

// set changes the inputs and the program.
func (p *languageProgram) set(change func()) {
	change()
	p.write()
}

// live takes the cluster through its life: it is created, gets a node and loses it, is upgraded, and is destroyed in
// two steps.
func (p *languageProgram) live(t *testing.T) {
	t.Helper()

	r := p.r
	outputs := upResult(t, p.stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.True(t, outputs["kubeconfig"].Secret)

	cluster, err := contract.Decode(outputs["contract"].Value)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"k3s-dev-control-1": 401, "k3s-dev-worker-1": 501, "k3s-dev-gpu-1": 601},
		cluster.NodeVMIDMap)
	requireNoChange(t, p.stack)

	worker := p.input("pools")["worker"].(map[string]any)

	p.set(func() { worker["count"] = 2 })
	up(t, p.stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	api := kubernetesClient(t, outputs)
	assert.Contains(t, readyNodes(t, api), "k3s-dev-worker-2")

	p.set(func() { worker["count"] = 1 })

	out := newOutput(t)
	_, err = p.stack.Preview(t.Context(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	assert.Contains(t, out.String(), "k3s-dev-worker-2")

	up(t, p.stack)
	assert.NotContains(t, readyNodes(t, api), "k3s-dev-worker-2", "it has left before its VM was deleted")

	since := time.Now()

	p.set(func() { p.input("cluster")["versions"].(map[string]any)["kubernetes"] = "v1.34.2" })
	up(t, p.stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, []string{"k3s-dev-control-1 v1.34.2", "k3s-dev-gpu-1 v1.34.2", "k3s-dev-worker-1 v1.34.2"},
		versionsOf(t, api))
	assert.Empty(t, r.Talos.Violations(since))

	_, err = p.stack.Destroy(t.Context(), optdestroy.ProgressStreams(newOutput(t)))
	require.Error(t, err, "the cluster's hooks belong to the program")

	p.set(func() { p.inputs["lifecycle"] = map[string]any{"teardown": true} })
	up(t, p.stack)

	_, err = p.stack.Destroy(t.Context(), optdestroy.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Empty(t, r.Leftovers())
}

// TestYAMLProgram brings the cluster of the example in YAML up, changes it, and destroys it.
func TestYAMLProgram(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	require.NoError(t, r.Backend.AddYAML(t.Context()))

	p, dir := newLanguageProgram(t, r, "yaml")
	path := filepath.Join(dir, "Pulumi.yaml")

	text, err := os.ReadFile(path)
	require.NoError(t, err)

	var program map[string]any
	require.NoError(t, yaml.Unmarshal(text, &program))

	program["resources"].(map[string]any)["home"].(map[string]any)["properties"] = p.inputs
	p.write = func() {
		text, err := yaml.Marshal(program)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}

	cidr := p.input("network")["cidr"]
	p.set(func() { p.input("network")["cidr"] = "here" })
	assert.Contains(t, failUp(t, p.stack), "network.cidr")
	p.set(func() { p.input("network")["cidr"] = cidr })

	p.live(t)
}

// TestTypeScriptProgram adds the package to the example in TypeScript, which makes an SDK, brings its cluster up,
// changes it, and destroys it.
func TestTypeScriptProgram(t *testing.T) {
	t.Parallel()
	requireNode(t)

	r := rehearse(t, "dev")
	require.NoError(t, r.Backend.AddNodeJS(t.Context()))

	p, dir := newLanguageProgram(t, r, "typescript")
	addPackage := exec.CommandContext(t.Context(), r.Engine().CLI(), "package", "add",
		"./plugins/pulumi-resource-talos-proxmox")
	addPackage.Dir, addPackage.Env = dir, r.Backend.Environ()
	npm(t, dir, addPackage)

	_, err := os.Stat(filepath.Join(dir, "sdks/talos-proxmox/cluster.ts"))
	require.NoError(t, err)

	// The example is what the SDK's types want, and a value that is none of an enumeration is not.
	path := filepath.Join(dir, "index.ts")
	example, err := os.ReadFile(path)
	require.NoError(t, err)
	npm(t, dir, exec.CommandContext(t.Context(), "npx", "tsc"))

	wrong := strings.Replace(string(example), `role: "worker"`, `role: "manager"`, 1)
	require.NoError(t, os.WriteFile(path, []byte(wrong), 0o600))

	tsc := exec.CommandContext(t.Context(), "npx", "tsc")
	tsc.Dir = dir
	printed, err := tsc.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(printed), `Type '"manager"' is not assignable to type 'Input<PoolRole>'`)

	args := regexp.MustCompile(`(?s)const args: talos.ClusterArgs = \{.*?\n\};`)
	require.Len(t, args.FindAll(example, -1), 1)

	secret := regexp.MustCompile(`"\$\{(\w+)\}"`)
	p.write = func() {
		text, err := json.MarshalIndent(p.inputs, "", "    ")
		require.NoError(t, err)

		text = append([]byte("const args: talos.ClusterArgs = "), append(text, ';')...)
		text = secret.ReplaceAll(text, []byte(`config.requireSecret("$1")`))
		require.NoError(t, os.WriteFile(path, args.ReplaceAllLiteral(example, text), 0o600))
	}

	// What is wrong with a program is found before it runs.
	p.set(func() { p.inputs["clutser"] = true })
	assert.Contains(t, failUp(t, p.stack), `'"clutser"' does not exist in type 'ClusterArgs'`)
	p.set(func() { delete(p.inputs, "clutser") })

	p.live(t)
}

// TestWorkloadsExample compiles the example of a stack of Kubernetes resources, whose plugin does not run here.
func TestWorkloadsExample(t *testing.T) {
	t.Parallel()
	requireNode(t)

	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "stacks/examples/workloads"))))
	npm(t, dir, exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts"))
	npm(t, dir, exec.CommandContext(t.Context(), "npx", "tsc"))
}

// requireNode skips a test where there is no node or no npm.
func requireNode(t *testing.T) {
	t.Helper()

	for _, command := range []string{"node", "npm"} {
		if _, err := exec.LookPath(command); err != nil {
			skipLoudly(t, "there is no "+command+": install Node.js 20 or later to run programs in TypeScript")
		}
	}
}

// offline is what npm says when it cannot reach its registry.
var offline = regexp.MustCompile(`npm error (?:code|errno) ` +
	`(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT)`)

// npm runs a command that may fetch packages of Node.js. The test is skipped where their registry cannot be reached.
func npm(t *testing.T, dir string, command *exec.Cmd) {
	t.Helper()

	command.Dir = dir

	printed, err := command.CombinedOutput()
	if err != nil && offline.Match(printed) {
		skipLoudly(t, "the registry of npm cannot be reached: "+string(offline.Find(printed)))
	}

	require.NoError(t, err, string(printed))
}

// skipLoudly skips a test, and says why. In a pipeline it fails: nothing that matters is skipped there.
func skipLoudly(t *testing.T, why string) {
	t.Helper()

	if os.Getenv("CI") != "" {
		require.Fail(t, "skipped", why)
	}

	fmt.Fprintf(os.Stderr, "SKIPPED %s: %s\n", t.Name(), why)
	t.Skip("SKIPPED: " + why)
}
