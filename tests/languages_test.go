package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

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

// yamlProgram is a program in YAML with a cluster, whose inputs are the configuration of a rehearsed stack.
type yamlProgram struct {
	stack auto.Stack
	path  string
	plain map[string]any // the program
}

// newYAMLProgram makes a project with the package of this module, which it adds as its page says.
func newYAMLProgram(t *testing.T, r *rehearsal.Rehearsal) *yamlProgram {
	t.Helper()

	require.NoError(t, r.Backend.AddYAML(t.Context()))

	properties := map[string]any{}
	file := filepath.Join(t.TempDir(), "Pulumi.values.yaml")
	require.NoError(t, r.WriteStackFile(file))

	values, err := stacks.ReadValues(file)
	require.NoError(t, err)

	for key, text := range values {
		var value any = text
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			value = text
		}

		properties[key] = value
	}

	config := auto.ConfigMap{}

	for key, secret := range r.Secrets() {
		name := key[len(stacks.Project)+1:]
		properties[name], config[name] = "${"+name+"}", secret
	}

	declared := map[string]any{}
	for name := range config {
		declared[name] = map[string]any{"type": "string", "secret": true}
	}

	binary := compile(t, "./stacks/provider")
	plugins := filepath.Dir(binary)
	require.NoError(t, os.Rename(binary, filepath.Join(plugins, "pulumi-resource-talos-proxmox")))

	dir := t.TempDir()
	p := &yamlProgram{path: filepath.Join(dir, "Pulumi.yaml"), plain: map[string]any{
		"name": "platform", "runtime": "yaml", "config": declared,
		"plugins":   map[string]any{"providers": []any{map[string]any{"name": "talos-proxmox", "path": plugins}}},
		"resources": map[string]any{"home": map[string]any{"type": "talos-proxmox:Cluster", "properties": properties}},
		"outputs": map[string]any{
			"contract": "${home.talos_bootstrap_contract}", "kubeconfig": "${home.kubeconfig}",
		},
	}}
	p.write(t)

	p.stack, err = r.Backend.LocalStack(t.Context(), dir, "test", config)
	require.NoError(t, err)

	return p
}

// property is a property of the cluster.
func (p *yamlProgram) property(name string) map[string]any {
	home := p.plain["resources"].(map[string]any)["home"].(map[string]any)

	return home["properties"].(map[string]any)[name].(map[string]any)
}

func (p *yamlProgram) write(t *testing.T) {
	t.Helper()

	text, err := yaml.Marshal(p.plain)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.path, text, 0o600))
}

// TestYAMLProgram brings a cluster up as a component of a program in YAML, adds a node, removes it, and destroys the
// cluster in two steps.
func TestYAMLProgram(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	p := newYAMLProgram(t, r)

	network := p.property("network")
	cidr := network["cidr"]
	network["cidr"] = "here"
	p.write(t)
	assert.Contains(t, failUp(t, p.stack), "network.cidr")

	network["cidr"] = cidr
	p.write(t)

	outputs := upResult(t, p.stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.True(t, outputs["kubeconfig"].Secret)

	cluster, err := contract.Decode(outputs["contract"].Value)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"k3s-dev-control-1": 401, "k3s-dev-worker-1": 501, "k3s-dev-gpu-1": 601},
		cluster.NodeVMIDMap)
	requireNoChange(t, p.stack)

	pools := p.property("pools")
	worker := pools["worker"].(map[string]any)
	worker["count"] = 2
	p.write(t)
	up(t, p.stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	api := kubernetesClient(t, outputs)
	assert.Contains(t, readyNodes(t, api), "k3s-dev-worker-2")

	worker["count"] = 1
	p.write(t)

	out := newOutput(t)
	_, err = p.stack.Preview(t.Context(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	assert.Contains(t, out.String(), "k3s-dev-worker-2")

	up(t, p.stack)
	assert.NotContains(t, readyNodes(t, api), "k3s-dev-worker-2", "it has left before its VM was deleted")

	_, err = p.stack.Destroy(t.Context(), optdestroy.ProgressStreams(newOutput(t)))
	require.Error(t, err, "the cluster's hooks belong to the program")

	home := p.plain["resources"].(map[string]any)["home"].(map[string]any)["properties"].(map[string]any)
	home["lifecycle"] = map[string]any{"teardown": true}
	p.write(t)
	up(t, p.stack)

	_, err = p.stack.Destroy(t.Context(), optdestroy.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Empty(t, r.Leftovers())
}
