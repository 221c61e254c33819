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
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/golden"
	"talos-proxmox/tests/lab/world"
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
	// partially has some steps tried with --target and --exclude as well.
	partially bool
}

// newLanguageProgram copies an example to a directory, with the package of this module as its page says.
func newLanguageProgram(t *testing.T, r *rehearsal.Rehearsal, example string) (p *languageProgram, dir string) {
	t.Helper()

	p, dir = &languageProgram{r: r}, copyExample(t, example)

	var config auto.ConfigMap

	p.inputs, config = componentInputs(t, r)

	// Nodes are upgraded from it.
	p.input("cluster")["versions"].(map[string]any)["kubernetes"] = "v1.33.6"

	var err error

	p.stack, err = r.Backend.LocalStack(t.Context(), dir, "test", config)
	require.NoError(t, err)

	return p, dir
}

// copyExample copies an example to a directory, with the plugin of the package.
func copyExample(t *testing.T, example string) (dir string) {
	t.Helper()

	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "stacks/examples", example))))
	addPlugin(t, dir)

	return dir
}

// addPlugin puts the plugin of the package into a directory of a program.
func addPlugin(t *testing.T, dir string) {
	t.Helper()

	built, err := thePlugin()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "plugins"), 0o700))
	require.NoError(t, os.Symlink(built, filepath.Join(dir, "plugins", filepath.Base(built))))
}

// thePlugin is the plugin of the package.
func thePlugin() (string, error) {
	return theBinaries.build("pulumi-resource-talos-proxmox", "./stacks/provider")
}

// componentInputs are the inputs of a component with the configuration of a rehearsed stack, and the secret keys that
// they name.
func componentInputs(t *testing.T, r *rehearsal.Rehearsal) (map[string]any, auto.ConfigMap) {
	t.Helper()

	file := filepath.Join(t.TempDir(), "Pulumi.values.yaml")
	require.NoError(t, r.WriteStackFile(file))

	values, err := config.ReadValues(file)
	require.NoError(t, err)

	inputs, settings := map[string]any{}, auto.ConfigMap{}

	for key, text := range values {
		var value any = text
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			value = text
		}

		inputs[key] = value
	}

	for key, secret := range r.Secrets() {
		name := strings.TrimPrefix(key, config.Project+":")
		inputs[name], settings[name] = "${"+name+"}", secret
	}

	return inputs, settings
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

	if p.partially {
		// Its children are no targets: the component is there, and nothing else.
		_, err := p.stack.Up(t.Context(), optup.Target([]string{"**:Cluster::home"}))
		require.NoError(t, err)
		assert.Empty(t, vmids(r))
	}

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

	if p.partially {
		p.requireNoBypass(t, api)
	} else {
		up(t, p.stack)
	}

	assert.NotContains(t, readyNodes(t, api), "k3s-dev-worker-2")

	var removal []string

	for _, call := range calls(r, "") {
		if strings.Contains(call, "k3s-dev-worker-2 /machine.MachineService/Reset") ||
			strings.Contains(call, "DELETE /nodes/pve/qemu/502") && !strings.Contains(call, "/502/") {
			removal = append(removal, call)
		}
	}

	require.Len(t, removal, 2, "it leaves before its VM is deleted")
	assert.Contains(t, removal[0], "Reset")
	assert.Contains(t, removal[1], "DELETE")

	since := time.Now()

	p.set(func() { p.input("cluster")["versions"].(map[string]any)["kubernetes"] = "v1.34.2" })

	if p.partially {
		p.requireVersionOrder(t, api)
	}

	up(t, p.stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, []string{"k3s-dev-control-1 v1.34.2", "k3s-dev-gpu-1 v1.34.2", "k3s-dev-worker-1 v1.34.2"},
		versionsOf(t, api))
	assert.Empty(t, r.Talos.Violations(since))

	out = newOutput(t)
	_, err = p.stack.Destroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(), "has delete hooks registered, but the program is not running")

	p.set(func() { p.inputs["lifecycle"] = map[string]any{"teardown": true} })
	up(t, p.stack)

	p.stack.Workspace().SetEnvVar(config.DestroyVariable, "1")

	_, err = p.stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Empty(t, r.Leftovers())
}

// requireNoBypass: a worker that is removed, and one that stays, lose their VMs in no other way than by the removal.
func (p *languageProgram) requireNoBypass(t *testing.T, api kubernetes.Interface) {
	t.Helper()

	destroy := func(options ...optdestroy.Option) error {
		_, err := p.stack.Destroy(t.Context(), append(options, optdestroy.Target([]string{"**::k3s-dev-worker-1-vm"}),
			optdestroy.TargetDependents())...)

		return err
	}

	require.ErrorContains(t, destroy(), "has delete hooks registered, but the program is not running")
	require.ErrorContains(t, destroy(optdestroy.RunProgram(true)),
		"k3s-dev-worker-1 is in the configuration, so its machine is not removed")

	removed := optup.Target([]string{"**::k3s-dev-worker-2-vm"})

	_, err := p.stack.Up(t.Context(), removed)
	require.ErrorContains(t, err, "k3s-dev-worker-2-config' will be destroyed but was not specified in --target list")
	assert.Contains(t, readyNodes(t, api), "k3s-dev-worker-2")

	_, err = p.stack.Up(t.Context(), removed, optup.TargetDependents(), optup.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
}

// requireVersionOrder: workers do not get a Kubernetes that the control planes do not have yet, and do afterwards.
func (p *languageProgram) requireVersionOrder(t *testing.T, api kubernetes.Interface) {
	t.Helper()

	before := versionsOf(t, api)

	for _, option := range []optup.Option{
		optup.Target([]string{"**::k3s-dev-worker-1-*"}), optup.Exclude([]string{"**::k3s-dev-control-1-*"}),
	} {
		_, err := p.stack.Up(t.Context(), option)
		require.ErrorContains(t, err, "cluster.versions.kubernetes: k3s-dev-worker-1 is not changed: control plane "+
			"k3s-dev-control-1 stays at v1.33.6, and workers never run a newer version (given: v1.34.2)")
		assert.Equal(t, before, versionsOf(t, api))
	}

	_, err := p.stack.Up(t.Context(), optup.Target([]string{"**::k3s-dev-control-1-*"}))
	require.NoError(t, err)
}

// TestYAMLProgram brings the cluster of the example in YAML up, changes it, and destroys it.
func TestYAMLProgram(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	require.NoError(t, r.Backend.AddYAML(t.Context()))

	p, dir := newLanguageProgram(t, r, "yaml")
	resources, write := yamlProgram(t, dir)
	p.write = func() {
		resources["home"].(map[string]any)["properties"] = p.inputs

		write()
	}

	p.partially = true
	cidr := p.input("network")["cidr"]
	p.set(func() { p.input("network")["cidr"] = "here" })
	assert.Contains(t, failUp(t, p.stack), "network.cidr")
	p.set(func() { p.input("network")["cidr"] = cidr })

	p.live(t)
}

// yamlProgram is the program in YAML in a directory: its resources, and what writes it with them.
func yamlProgram(t *testing.T, dir string) (resources map[string]any, write func()) {
	t.Helper()

	path := filepath.Join(dir, "Pulumi.yaml")

	text, err := os.ReadFile(path)
	require.NoError(t, err)

	var program map[string]any
	require.NoError(t, yaml.Unmarshal(text, &program))

	return program["resources"].(map[string]any), func() {
		text, err := yaml.Marshal(program)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
}

// TestComponentsTogether has two clusters in a program in YAML: one may not be what the other is, Ctrl-C and the death of
// the CLI end what the hooks of a component wait for, a cluster is not removed with its component before it is released,
// and a destruction with the program asks for the same.
func TestComponentsTogether(t *testing.T) {
	t.Parallel()

	one := rehearse(t, "dev")
	two := rehearse(t, devWith(t, "name: k3s-dev", "name: k3s-test"))
	require.NoError(t, one.Backend.AddYAML(t.Context()))

	dir := copyExample(t, "yaml")
	resources, write := yamlProgram(t, dir)
	home, settings := componentInputs(t, one)
	other, _ := componentInputs(t, two)

	cluster := func(inputs map[string]any) map[string]any {
		return map[string]any{"type": "talos-proxmox:Cluster", "properties": inputs}
	}

	// A token that the program does not make secret is secret in the state all the same.
	plain := two.Secrets()[config.Project+":proxmoxTokenSecret"].Value
	other["proxmoxTokenSecret"] = plain

	resources["home"], resources["other"] = cluster(home), cluster(other)
	lifecycle := map[string]any{"drainTimeout": "30m"}
	home["lifecycle"] = lifecycle

	command := one.Engine().NewCommand()
	stack, err := one.Backend.LocalStack(t.Context(), dir, "test", settings, auto.Pulumi(command))
	require.NoError(t, err)

	named := other["cluster"].(map[string]any)
	named["name"] = "k3s-dev"

	write()

	out := newOutput(t)
	_, err = stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(), "clashes with cluster k3s-dev of this program")

	named["name"] = "k3s-test"

	// Policies see the inputs of the component.
	worker := home["pools"].(map[string]any)["worker"].(map[string]any)
	worker["labels"] = map[string]any{"token": "ghp_" + strings.Repeat("a", 36)}

	write()

	found, err := previewWith(t, stack, compilePolicies(t))
	require.Error(t, err)
	assert.Contains(t, found, "mandatory no-plain-secrets: home.pools.worker.labels.token: must be secret, for it holds "+
		"a GitHub token; take it from a secret configuration key, or wrap it in pulumi.ToSecret")
	delete(worker, "labels")
	write()
	requireJSON(t, one, dir, stack.Name())

	api := kubernetesClient(t, upResult(t, stack).Outputs)
	require.NoError(t, one.WaitReady(t.Context(), wait))
	require.NoError(t, two.WaitReady(t.Context(), wait))
	requireNoChange(t, stack)

	// A worker that is not drained.
	hold(t, api, "held", "k3s-dev-worker-1")

	worker["memoryMiB"] = 6144

	write()

	before := machine(t, one, "k3s-dev-worker-1").PID

	// update is one that waits for the drain until it is ended.
	update := func(end func()) (printed string) {
		said, asked := make(chan string), len(calls(one, "/eviction"))

		go func() {
			out := newOutput(t)
			_, err := stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
			assert.Error(t, err)
			said <- out.String()
		}()

		require.Eventually(t, func() bool { return len(calls(one, "/eviction")) > asked+1 }, wait, 50*time.Millisecond)
		end()

		select {
		case printed = <-said:
		case <-time.After(wait):
			command.Kill()
			t.Fatalf("it does not end: %s", <-said)
		}

		return printed
	}

	assert.NotContains(t, update(func() { require.NoError(t, command.Signal(os.Interrupt)) }), "gave up after")

	// Killed, it leaves plugins behind, which end what they wait for.
	update(command.Kill)
	require.True(t, command.Killed())
	require.NoError(t, stack.Cancel(t.Context()))

	asked := -1

	require.Eventually(t, func() bool {
		last := asked
		asked = len(calls(one, "/eviction"))

		return asked == last
	}, wait, 6*time.Second)

	assert.Equal(t, before, machine(t, one, "k3s-dev-worker-1").PID)
	require.NoError(t, api.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "held", metav1.DeleteOptions{}))
	up(t, stack)
	assert.EqualValues(t, 6144<<20, machine(t, one, "k3s-dev-worker-1").Memory)

	// The hooks that protect a cluster are registered by its component.
	vms := two.Lab.World().Snapshot()

	delete(resources, "other")
	write()
	assert.Contains(t, failUp(t, stack), `hook "k3s-test-removed" was not registered`)
	assert.Equal(t, vms, two.Lab.World().Snapshot())

	// Options of the component reach what it consists of.
	released := cluster(other)
	resources["other"], other["lifecycle"] = released, map[string]any{"teardown": true}
	released["options"] = map[string]any{"retainOnDelete": true}

	write()
	up(t, stack)

	export := exec.CommandContext(t.Context(), one.Engine().CLI(), "stack", "export", "--stack", stack.Name())
	export.Dir, export.Env = dir, one.Backend.Environ()
	state, err := export.Output()
	require.NoError(t, err)
	assert.NotContains(t, string(state), plain)

	var exported struct{ Deployment apitype.DeploymentV3 }
	require.NoError(t, json.Unmarshal(state, &exported))

	retained := map[string]bool{}
	for _, r := range exported.Deployment.Resources {
		retained[r.URN.Name()] = r.RetainOnDelete
	}

	assert.True(t, retained["k3s-test-worker-1-vm"])
	assert.False(t, retained["k3s-dev-worker-1-vm"])

	delete(released, "options")
	write()
	up(t, stack)
	delete(resources, "other")
	write()
	up(t, stack)
	assert.Empty(t, two.Leftovers())
	require.NoError(t, one.WaitReady(t.Context(), wait))

	_, err = stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(), "set lifecycle.teardown to true and run 'pulumi up'")
	require.NoError(t, one.WaitReady(t.Context(), wait))

	lifecycle["teardown"] = true

	write()
	up(t, stack)

	// The plugin is told that the run destroys: it refuses to begin while a VM is protected.
	stack.Workspace().SetEnvVar(config.DestroyVariable, "1")

	destroy := func(options ...optdestroy.Option) (printed string, err error) {
		out := newOutput(t)
		_, err = stack.Destroy(t.Context(), append(options, optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
			optdestroy.ErrorProgressStreams(out))...)

		return out.String(), err
	}
	protect := func(on string) {
		require.NoError(t, one.Lab.World().Update(world.Caller{ID: one.Lab.Credentials().TokenID}, "pve", 501,
			world.UpdateRequest{Conf: map[string]string{"protection": on}}))
	}

	protect("1")

	printed, err := destroy()
	require.Error(t, err)
	assert.Contains(t, printed, "does not delete VMs that are protected on Proxmox VE: nothing is destroyed")
	protect("0")

	// Another VM takes the VMID of a node over.
	foreign(t, one, 501, map[string]string{"name": "k3s-dev-worker-1", "tags": "k3s-dev;talos;worker"})

	printed, err = destroy()
	require.Error(t, err)
	assert.Contains(t, printed, `VMID 501 is "k3s-dev-worker-1" on host pve (UUID `)

	remove(t, one, 501)

	printed, err = destroy(optdestroy.Refresh())
	require.NoError(t, err, printed)
	assert.Empty(t, one.Leftovers())
}

// requireJSON: the preview of a program for other programs names each step, those of components included, and shows no
// secret.
func requireJSON(t *testing.T, r *rehearsal.Rehearsal, dir, stack string) {
	t.Helper()

	command := exec.CommandContext(t.Context(), r.Engine().CLI(), "preview", "--json", "--stack", stack)
	command.Dir, command.Env = dir, r.Backend.Environ()
	printed, err := command.Output()
	require.NoError(t, err)

	var preview struct {
		Steps []struct{ Op, URN string }
	}

	require.NoError(t, json.Unmarshal(printed, &preview))

	var clusters []string

	for _, step := range preview.Steps {
		if strings.Contains(step.URN, "::talos-proxmox:index:Cluster::") {
			clusters = append(clusters, step.Op+" "+step.URN[strings.LastIndex(step.URN, ":")+1:])
		}
	}

	assert.ElementsMatch(t, []string{"create home", "create other"}, clusters)

	for _, secret := range r.Secrets() {
		assert.NotContains(t, string(printed), secret.Value)
	}
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

	// The example in YAML is converted to one that the types take, too.
	converted, err := os.ReadFile(filepath.Join(convert(t, r.Backend, "typescript"), "index.ts"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, converted, 0o600))
	npm(t, dir, exec.CommandContext(t.Context(), "npx", "tsc"))

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

	// The types are known to hold. To check them takes more than an update does.
	p.stack.Workspace().SetEnvVar("PULUMI_NODEJS_TRANSPILE_ONLY", "true")
	p.live(t)
}

// TestPackageFromSource: the directory of the package may be added instead of its plugin, which pulumi then compiles.
func TestPackageFromSource(t *testing.T) {
	t.Parallel()

	backend := newBackend(t)
	require.NoError(t, backend.AddYAML(t.Context()))

	source, err := filepath.Abs(filepath.Join(root, "stacks/provider"))
	require.NoError(t, err)

	dir := t.TempDir()
	project := filepath.Join(dir, "Pulumi.yaml")
	require.NoError(t, os.WriteFile(project, []byte("name: platform\nruntime: yaml\n"), 0o600))

	add := exec.CommandContext(t.Context(), backend.CLI(), "package", "add", source)
	add.Dir, add.Env = dir, backend.Environ()
	printed, err := add.CombinedOutput()
	require.NoError(t, err, string(printed))

	added, err := os.ReadFile(project)
	require.NoError(t, err)
	assert.Contains(t, string(added), "talos-proxmox: "+source)
}

// TestConvertedExample has pulumi convert the example in YAML to Python, which is the example in Python. It is not run:
// that takes Pulumi's SDK for Python.
func TestConvertedExample(t *testing.T) {
	t.Parallel()

	backend := newBackend(t)

	converted := convert(t, backend, "python")

	for _, name := range []string{"__main__.py", "Pulumi.yaml"} {
		text, err := os.ReadFile(filepath.Join(converted, name))
		require.NoError(t, err)
		golden.Check(t, filepath.Join(root, "stacks/examples/python", name), string(text))
	}
}

// convert has pulumi convert the example in YAML to another language, and returns the directory of the new program. The
// package's plugin is looked for there.
func convert(t *testing.T, backend *engine.Backend, language string) (to string) {
	t.Helper()
	require.NoError(t, backend.AddConverters(t.Context()))

	to = t.TempDir()
	addPlugin(t, to)

	command := exec.CommandContext(t.Context(), backend.CLI(), "convert", "--from", "yaml", "--language", language,
		"--generate-only", "--out", to)
	command.Dir, command.Env = copyExample(t, "yaml"), backend.Environ()
	printed, err := command.CombinedOutput()
	require.NoError(t, err, string(printed))

	return to
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
