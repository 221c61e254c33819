package stacks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// templateProxmox is a Proxmox VE with one template. What is not expected to be asked is nil.
type templateProxmox struct{ fakeProxmox }

func (templateProxmox) VMs(context.Context) ([]proxmoxapi.VM, error) {
	return []proxmoxapi.VM{{ID: 9000, Name: "talos-v1.12.4-base", Host: "pve", Template: true}}, nil
}

func (templateProxmox) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 10}}, nil
}

func testConfig() Config {
	return Config{
		ProxmoxTokenSecret: "11111111-2222-3333-4444-555555555555",
		Spec: spec.Spec{
			Proxmox: spec.Proxmox{
				Endpoint: "https://pve.lan:8006", TokenID: "pulumi@pve!talos",
				Hosts: []spec.Host{{Name: "pve"}},
			},
			Cluster: spec.Cluster{Name: "k3s-dev", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
			Image: spec.Image{
				Source:   spec.SourceTemplate,
				Template: spec.TemplateImage{Control: "talos-v1.12.4-base", Worker: "talos-v1.12.4-base"},
			},
			Network: spec.Network{CIDR: "192.168.10.0/24"},
			Pools: map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "192.168.10.11-192.168.10.19"},
				"worker":  {Role: spec.RoleWorker, Count: new(2), Addresses: "192.168.10.21-192.168.10.29"},
			},
		},
	}
}

func testProgram(config Config) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		p, err := config.Plan()
		if err != nil {
			return err
		}

		_, err = deployTo(ctx, config, p, templateProxmox{})

		return err
	}
}

// TestWiring holds the exact set of resources, each with its type, parent, provider and what it waits for.
func TestWiring(t *testing.T) {
	resources := record(t, testProgram(testConfig()))

	const (
		talosProvider   = "k3s-dev-talos"
		proxmoxProvider = "k3s-dev-proxmox"
		answering       = "k3s-dev-node-answering"
		adopted         = "k3s-dev-node-adopted"
		configured      = "k3s-dev-node-configured"
	)

	controls := []string{"k3s-dev-control-1-config", "k3s-dev-control-2-config", "k3s-dev-control-3-config"}

	want := map[string]string{
		proxmoxProvider:      line("pulumi:providers:proxmoxve", "", "", nil, nil),
		talosProvider:        line("pulumi:providers:talos", "", "", nil, nil),
		"k3s-dev":            line("talos-proxmox:index:TalosCluster", "", "", nil, nil),
		"k3s-dev-precedence": line("pulumi:index:Stash", "k3s-dev", "", nil, nil),
		"k3s-dev-secrets":    line("talos:machine/secrets:Secrets", "k3s-dev", talosProvider, nil, nil),
		"k3s-dev-kubeconfig": line("talos:cluster/kubeconfig:Kubeconfig", "k3s-dev", talosProvider,
			append([]string{"k3s-dev-secrets"}, controls...), []string{"k3s-dev-bootstrapped", "k3s-dev-ready"}),
	}

	for _, node := range []string{
		"k3s-dev-control-1", "k3s-dev-control-2", "k3s-dev-control-3", "k3s-dev-worker-1",
		"k3s-dev-worker-2",
	} {
		after, first := []string{"k3s-dev-secrets", node + "-vm"}, []string(nil)
		if strings.Contains(node, "worker") {
			after, first = append(after, controls...), []string{"k3s-dev-precedence"}
		}

		want[node] = line("talos-proxmox:index:TalosNode", "k3s-dev", "", nil, nil)
		want[node+"-vm"] = line("proxmoxve:VM/virtualMachine:VirtualMachine", node, proxmoxProvider, first,
			[]string{"k3s-dev-vm-announced", "k3s-dev-vmid-free"})
		want[node+"-config"] = line("talos:machine/configurationApply:ConfigurationApply", node, talosProvider, after,
			[]string{answering, adopted, configured})
	}

	got := map[string]string{}
	for name, r := range resources {
		got[name] = line(r.token, r.parent, r.provider, r.deps, r.hooks)
	}

	assert.Equal(t, want, got)
}

func line(token, parent, provider string, deps, hooks []string) string {
	deps = slices.Sorted(slices.Values(deps))

	return fmt.Sprintf("%s of %q by %q after %v gated by %v", token, parent, provider, deps, hooks)
}

// TestSecretInputs holds which inputs are secret. Everything else may be shown.
func TestSecretInputs(t *testing.T) {
	resources := record(t, testProgram(testConfig()))

	got := map[string][]string{}

	for name, r := range resources {
		for _, key := range slices.Sorted(maps.Keys(r.inputs)) {
			if r.inputs[key].ContainsSecrets() {
				got[name] = append(got[name], string(key))
			}
		}
	}

	want := map[string][]string{
		"k3s-dev-proxmox":    {"apiToken"},
		"k3s-dev-kubeconfig": {"clientConfiguration"},
	}
	for _, node := range []string{"control-1", "control-2", "control-3", "worker-1", "worker-2"} {
		want["k3s-dev-"+node+"-config"] = []string{"clientConfiguration", "configPatches", "machineConfigurationInput"}
	}

	assert.Equal(t, want, got)
}

// TestProviderWorkarounds holds what the providers need to be told, each for the reason given where it is set.
func TestProviderWorkarounds(t *testing.T) {
	resources := record(t, testProgram(testConfig()))

	vm := resources["k3s-dev-worker-2-vm"]
	assert.Subset(t, vm.ignored, []string{"clone", "nodeName", "disks[0].speed", "disks[0].iothread"})
	assert.NotContains(t, vm.ignored, "disks[0].size")
	assert.Equal(t, resource.NewProperty([]resource.PropertyValue{}), vm.inputs["serialDevices"])
	assert.Equal(t, "none", vm.inputs["cdrom"].ObjectValue()["fileId"].StringValue())
	assert.False(t, vm.inputs["agent"].ObjectValue()["enabled"].BoolValue())
	assert.Len(t, vm.inputs["disks"].ArrayValue(), 1)

	config := resources["k3s-dev-worker-2-config"]
	assert.Equal(t, []string{"k3s-dev-worker-2-vm"}, config.replace)
	assert.Equal(t, config.inputs["node"], config.inputs["endpoint"])

	for name, r := range resources {
		assert.NotContains(t, r.inputs, resource.PropertyKey("timeouts"), name)
	}

	assert.Equal(t, []string{"talosVersion"}, resources["k3s-dev-secrets"].ignored)
}

// TestProtectedMachines: Pulumi guards what Proxmox VE guards, and what control planes are worth nothing without.
func TestProtectedMachines(t *testing.T) {
	config := testConfig()
	config.Environment, config.Firewall.Enabled = spec.EnvironmentProduction, new(false)

	for name, r := range record(t, testProgram(config)) {
		want := strings.Contains(name, "control") && strings.HasSuffix(name, "-vm")
		assert.Equal(t, want || name == "k3s-dev-secrets", r.protect, name)

		if strings.HasSuffix(name, "-vm") {
			assert.Equal(t, want, r.inputs["protection"].BoolValue(), name)
		}
	}
}

// TestGrowth holds that a larger pool leaves what exists as it was.
func TestGrowth(t *testing.T) {
	small := record(t, testProgram(testConfig()))

	config := testConfig()
	worker := config.Pools["worker"]
	worker.Count = new(5)
	config.Pools["worker"] = worker

	large := record(t, testProgram(config))

	for name, before := range small {
		after, there := large[name]
		require.True(t, there, name)

		// Every run proposes another identity, which only a new machine takes.
		for _, own := range []resource.PropertyKey{"smbios", "description"} {
			delete(before.inputs, own)
			delete(after.inputs, own)
		}

		assert.Equal(t, before, after)
	}
}

// TestKubeconfigRenewal: the provider's default stays where nothing is set, so that existing stacks see no change.
func TestKubeconfigRenewal(t *testing.T) {
	config := testConfig()
	_, stated := record(t, testProgram(config))["k3s-dev-kubeconfig"].inputs["certificateRenewalDuration"]
	assert.False(t, stated)

	config.Lifecycle.KubeconfigRenewal = "1440h"
	inputs := record(t, testProgram(config))["k3s-dev-kubeconfig"].inputs
	assert.Equal(t, "1440h0m0s", inputs["certificateRenewalDuration"].StringValue())
}

// TestDestroyKeepsHooks: a run that destroys the cluster registers the hooks that the state has. Others would have the
// engine save the state for each resource before it deletes any. Where the program will not run, nothing may have any.
func TestDestroyKeepsHooks(t *testing.T) {
	for name, of := range map[string]struct {
		config  Config
		program func(Config) pulumi.RunFunc
	}{
		"Talos": {testConfig(), testProgram},
		"K3s":   {k3sConfig(t), func(c Config) pulumi.RunFunc { return k3sProgram(c) }},
	} {
		t.Run(name, func(t *testing.T) {
			before := record(t, of.program(of.config))
			assert.Contains(t, fmt.Sprint(before), "before_delete")
			assert.Contains(t, fmt.Sprint(before), "on_error")

			c := of.config
			c.Lifecycle.Teardown = true

			for name, r := range record(t, of.program(c)) {
				assert.NotRegexp(t, "before_delete|after_delete|on_error", r.allHooks, name)
			}

			c.Destroying = true

			for name, r := range record(t, of.program(c)) {
				assert.Equal(t, before[name].allHooks, r.allHooks, name)
			}
		})
	}
}
