package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/stacks"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
)

// requireOutputs holds everything that a stack exports against the schema of the repository, and that the outputs agree
// with each other.
func requireOutputs(t *testing.T, outputs auto.OutputMap) *contract.Contract {
	t.Helper()

	all := map[string]any{}

	for name, output := range outputs {
		all[name] = output.Value
		assert.Equal(t, slices.Contains([]string{
			contract.OutputKubeconfig, contract.OutputKubernetesCredentials, contract.OutputTalosconfig,
		}, name), output.Secret, name)
	}

	text, err := json.Marshal(all)
	require.NoError(t, err)

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, schema(t, "outputs.schema.json").Validate(value))

	cluster, err := contract.Read(text)
	require.NoError(t, err)

	shared, err := json.Marshal(cluster.Inventory)
	require.NoError(t, err)

	var same map[string]any
	require.NoError(t, json.Unmarshal(shared, &same))

	for name, value := range same {
		assert.Equal(t, value, all[name], name)
	}

	for _, n := range cluster.BootstrapNodes.All() {
		assert.Equal(t, n.VMID, cluster.NodeVMIDMap[n.Name])

		address, known := cluster.NodeIPMap[n.Name]
		if assert.Equal(t, n.IP != nil, known, n.Name); known {
			assert.Equal(t, *n.IP, address)
		}
	}

	return cluster
}

func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()

	c := jsonschema.NewCompiler()
	c.AssertFormat()

	s, err := c.Compile(filepath.Join(root, "stacks", "schema", name))
	require.NoError(t, err)

	return s
}

// TestLegacyOutputs holds the previous lists, which are there only when they are asked for.
func TestLegacyOutputs(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join(root, "Pulumi.dev.yaml"))
	require.NoError(t, err)

	r := rehearse(t, stackFile(t, string(text)+"  talos-proxmox:outputs: {legacy: true}\n"))
	outputs := upResult(t, r.Stack).Outputs
	requireOutputs(t, outputs)

	for name, want := range map[string]string{
		"control_plane_ips":   fmt.Sprintf("[%q]", addressOf(r, "k3s-dev-control-1")),
		"worker_ips":          fmt.Sprintf("[%q]", addressOf(r, "k3s-dev-worker-1")),
		"gpu_worker_ips":      fmt.Sprintf("[%q]", addressOf(r, "k3s-dev-gpu-1")),
		"control_plane_vmids": "[401]",
		"worker_vmids":        "[501]",
		"gpu_worker_vmids":    "[601]",
		"gpu_worker_pci_bdfs": `["0000:01:00.0"]`,
	} {
		text, err := json.Marshal(outputs[name].Value)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(text), name)
	}

	assert.Len(t, outputs, 17)
}

// TestContractOfExamples holds everything that the example stacks export against the schema. What they are is as their
// documents have it: VMs alone with GPU workers and the previous outputs, a highly available cluster at home, and one
// over three hosts.
func TestContractOfExamples(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]struct{ control, workers, gpus, known, outputs int }{
		"k3s-dev-vms": {1, 2, 2, 5, 12},
		"atlas":       {3, 2, 0, 5, 11},
		"enterprise":  {3, 4, 0, 7, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			outputs := upResult(t, rehearse(t, name).Stack).Outputs
			cluster := requireOutputs(t, outputs)

			assert.Len(t, cluster.BootstrapNodes.ControlPlane, want.control)
			assert.Len(t, cluster.BootstrapNodes.Workers, want.workers)
			assert.Len(t, cluster.BootstrapNodes.GPUWorkers, want.gpus)
			assert.Len(t, cluster.NodeIPMap, want.known)
			assert.Len(t, cluster.ControlPlaneEndpoints, want.control)
			assert.Len(t, outputs, want.outputs)

			if want.gpus > 0 {
				assert.Equal(t, []any{"0000:01:00.0", "0000:02:00.0"}, outputs[contract.OutputGPUWorkerPCIBDFs].Value)
				assert.Equal(t, []any{601.0, 602.0}, outputs[contract.OutputGPUWorkerVMIDs].Value)
				assert.Equal(t, "0000:02:00.0", *cluster.BootstrapNodes.GPUWorkers[1].GPU)
			}
		})
	}
}

// TestTwoClustersInOneStack: a program may deploy several clusters, each with providers of its own, and no name
// clashes.
func TestTwoClustersInOneStack(t *testing.T) {
	t.Parallel()

	one, two := rehearse(t, "dev"), rehearse(t, devWith(t, "name: k3s-dev", "name: k3s-test"))
	configs := map[string]config.Config{"one": configOf(t, one), "two": configOf(t, two)}

	s, err := one.Backend.InlineStack(t.Context(), "embedding", "both", func(ctx *pulumi.Context) error {
		for _, name := range []string{"one", "two"} {
			d, err := stacks.Deploy(ctx, configs[name])
			if err != nil {
				return err
			}

			ctx.Export(name, d.Outputs[contract.OutputContract])
			ctx.Export(name+"-kubeconfig", d.Outputs[contract.OutputKubeconfig])
		}

		return nil
	}, nil)
	require.NoError(t, err)

	outputs := upResult(t, s).Outputs

	for name, r := range map[string]*rehearsal.Rehearsal{"one": one, "two": two} {
		cluster, err := contract.Decode(outputs[name].Value)
		require.NoError(t, err)
		assert.Equal(t, r.Plan.Cluster, cluster.Cluster)
		assert.Equal(t, addressOf(r, r.Plan.Cluster+"-worker-1"), *cluster.BootstrapNodes.Workers[0].IP)
		assert.Contains(t, outputs[name+"-kubeconfig"].Value, addressOf(r, r.Plan.Cluster+"-control-1")+":6443")
		assert.True(t, outputs[name+"-kubeconfig"].Secret)
		require.NoError(t, r.WaitReady(t.Context(), wait))
	}

	requireNoChange(t, s)

	// Both let go of their nodes.
	for name, config := range configs {
		config.Lifecycle.Teardown = true
		configs[name] = config
	}

	destroy(t, s)

	for _, r := range []*rehearsal.Rehearsal{one, two} {
		assert.Empty(t, r.Leftovers())
	}
}

// configOf is the configuration of a rehearsed stack, for a program that embeds it.
func configOf(t *testing.T, r *rehearsal.Rehearsal) config.Config {
	t.Helper()

	path := filepath.Join(t.TempDir(), "Pulumi.embedded.yaml")
	require.NoError(t, r.WriteStackFile(path))

	values, err := config.ReadValues(path)
	require.NoError(t, err)

	for key, secret := range r.Secrets() {
		values[strings.TrimPrefix(key, config.Project+":")] = secret.Value
	}

	config, err := config.Decode(values, config.Secrets{}, filepath.Dir(path))
	require.NoError(t, err)

	return config
}

// TestGoExamples runs the example of a cluster whose configuration is Go, and the example of a stack that reads it, as
// programs of their own.
func TestGoExamples(t *testing.T) {
	t.Parallel()

	r := rehearse(t, exampleStack(t))
	project := projectOf(t, "stacks/examples/go", "-overlay", goExample(t, r))

	home, err := r.Backend.LocalStack(t.Context(), project, "home", nil)
	require.NoError(t, err)
	assert.Contains(t, failUp(t, home), "missing required configuration variable 'proxmoxTokenSecret'")

	reader, err := r.Backend.LocalStack(t.Context(), projectOf(t, "stacks/examples/consumer"), "balancer", nil)
	require.NoError(t, err)

	assert.Contains(t, failUp(t, reader), "missing required configuration variable 'cluster'; run `pulumi config` to set; "+
		"name the stack of the cluster, for example organization/talos-proxmox/dev")
	require.NoError(t, reader.SetConfig(t.Context(), "consumer:cluster",
		auto.ConfigValue{Value: "organization/platform/home"}))
	assert.Contains(t, failUp(t, reader),
		"the stack has no output talos_bootstrap_contract: is it a stack of this program, and deployed?")

	require.NoError(t, home.SetConfig(t.Context(), "proxmoxTokenSecret", r.Secrets()[config.Project+":proxmoxTokenSecret"]))
	up(t, home)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, home)

	outputs := upResult(t, reader).Outputs

	assert.Equal(t, "frontend home\n  mode tcp\n  bind :6443\n  default_backend home-control-planes\n\n"+
		"backend home-control-planes\n  mode tcp\n  option tcp-check\n"+
		"  server home-control-1 "+addressOf(r, "home-control-1")+":6443 check\n", outputs["haproxy"].Value)
	assert.True(t, outputs["kubeconfig"].Secret)
	assert.Contains(t, outputs["kubeconfig"].Value, "client-certificate-data")
	requireNoChange(t, reader)
}

// exampleStack is a stack file with the configuration of the examples in every language, as the one in YAML has it.
func exampleStack(t *testing.T) string {
	t.Helper()

	var program struct {
		Resources struct {
			Home struct{ Properties map[string]any }
		}
	}

	require.NoError(t, yaml.Unmarshal(readFile(t, filepath.Join(root, "stacks/examples/yaml/Pulumi.yaml")), &program))

	settings := map[string]any{}

	for key, value := range program.Resources.Home.Properties {
		if key != "proxmoxTokenSecret" {
			settings[config.Project+":"+key] = value
		}
	}

	text, err := yaml.Marshal(map[string]any{"config": settings})
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "Pulumi.home.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))

	return path
}

// goExample is an overlay of go build that has the example in Go use the lab of a rehearsal. All of it but the addresses
// stays as it is.
func goExample(t *testing.T, r *rehearsal.Rehearsal) (overlay string) {
	t.Helper()

	path, err := filepath.Abs(filepath.Join(root, "stacks/examples/go/main.go"))
	require.NoError(t, err)

	text, config := string(readFile(t, path)), configOf(t, r)

	for _, value := range []struct{ from, to string }{
		{`"https://pve.lan:8006"`, strconv.Quote(config.Proxmox.Endpoint) + ", Insecure: true"},
		{`"pulumi@pve!talos"`, strconv.Quote(config.Proxmox.TokenID)},
		{`"192.168.10.0/24"`, strconv.Quote(config.Network.CIDR)},
		{`"192.168.10.1"`, strconv.Quote(config.Network.Gateway)},
		{`"192.168.10.11-13"`, strconv.Quote(string(config.Pools["control"].Addresses))},
		{`"192.168.10.21-49"`, strconv.Quote(string(config.Pools["worker"].Addresses))},
		{"Spec: spec.Spec{", fmt.Sprintf("Spec: spec.Spec{\nImage: spec.Image{Factory: spec.FactoryImage{URL: %q}},",
			config.Image.Factory.URL)},
	} {
		require.Equal(t, 1, strings.Count(text, value.from), value.from)
		text = strings.Replace(text, value.from, value.to, 1)
	}

	dir := t.TempDir()
	changed := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(changed, []byte(text), 0o600))

	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	require.NoError(t, err)

	overlay = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))

	return overlay
}
