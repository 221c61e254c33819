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
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/contract"
)

// cloudImageProxmox is a Proxmox VE with one template for cloud-init.
type cloudImageProxmox struct{ fakeProxmox }

func (cloudImageProxmox) VMs(context.Context) ([]proxmoxapi.VM, error) {
	return []proxmoxapi.VM{{ID: 9000, Name: "ubuntu-24.04", Host: "pve", Template: true}}, nil
}

func (cloudImageProxmox) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 4}, CloudInit: "ide2"}, nil
}

func (cloudImageProxmox) FirewallOn(context.Context) (bool, error) { return true, nil }

func (cloudImageProxmox) SharedStores(context.Context) (map[string]bool, error) { return nil, nil }

func k3sConfig(t *testing.T) Config {
	t.Helper()

	c, err := LoadFile("examples/Pulumi.k3s.yaml")
	require.NoError(t, err)

	return c
}

func k3sProgram(config Config, then ...func(*Deployment)) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		p, err := config.Plan()
		if err != nil {
			return err
		}

		d, err := deployTo(ctx, config, p, cloudImageProxmox{})
		if err != nil {
			return err
		}

		for _, f := range then {
			f(d)
		}

		return nil
	}
}

// TestK3sWiring holds the exact set of resources of a cluster of K3s.
func TestK3sWiring(t *testing.T) {
	resources := record(t, k3sProgram(k3sConfig(t)))

	const (
		proxmox = "edge-proxmox"
		stash   = "pulumi:index:Stash"
	)

	want := map[string]string{
		proxmox:              line("pulumi:providers:proxmoxve", "", "", nil, nil),
		"edge":               line("talos-proxmox:index:K3sCluster", "", "", nil, nil),
		"edge-identity":      line(stash, "edge", "", nil, nil),
		"edge-administrator": line(stash, "edge", "", []string{"edge-identity"}, nil),
		"edge-precedence":    line(stash, "edge", "", nil, nil),
	}

	for _, node := range []string{"edge-server-1", "edge-agent-1"} {
		vm, first := node+"-vm", []string{node + "-user-data"}
		if node == "edge-agent-1" {
			first = append(first, "edge-precedence")
		}

		want[node] = line("talos-proxmox:index:K3sNode", "edge", "", nil, nil)
		want[node+"-user-data"] = line("proxmoxve:Storage/file:File", node, proxmox, []string{"edge-identity"},
			[]string{"edge-deletions-ended"})
		want[vm] = line("proxmoxve:VM/virtualMachine:VirtualMachine", node, proxmox, first,
			[]string{"edge-vm-announced", "edge-vmid-free"})
		want[node+"-rules"] = line("proxmoxve:Network/firewallRules:FirewallRules", node, proxmox, []string{vm},
			[]string{"edge-vm-companions"})
		want[node+"-firewall"] = line("proxmoxve:Network/firewallOptions:FirewallOptions", node, proxmox,
			[]string{node + "-rules", vm}, []string{"edge-vm-companions"})
		before := []string{"edge-administrator", "edge-identity", node + "-firewall", vm}
		if node == "edge-agent-1" {
			// It is upgraded when the servers are.
			before = slices.Sorted(slices.Values(append(before, "edge-server-1-joined")))
		}

		want[node+"-joined"] = line(stash, node, "", before, []string{"edge-node-joined"})

		assert.Equal(t, []string{vm}, resources[node+"-joined"].replace)
		assert.Equal(t, []string{"nodeName", "fileMode"}, resources[node+"-user-data"].ignored,
			"a VM that is not there is told what holds now")
	}

	got := map[string]string{}
	for name, r := range resources {
		got[name] = line(r.token, r.parent, r.provider, slices.Compact(slices.Sorted(slices.Values(r.deps))), r.hooks)
	}

	assert.Equal(t, want, got)
}

// TestK3sManifestsWiring: what Kubernetes is to have is noted after all nodes have joined, by checksums, for these
// servers. Nothing is applied while the cluster is released.
func TestK3sManifestsWiring(t *testing.T) {
	config := k3sConfig(t)
	config.Cluster.Addons = []spec.Addon{spec.AddonFlux}
	config.SecretManifests = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {key: hunter2}\n"

	applied := record(t, k3sProgram(config))["edge-manifests"]
	input := applied.inputs["input"].ObjectValue()

	assert.Equal(t, "edge", applied.parent)
	assert.Subset(t, applied.deps, []string{"edge-server-1-joined", "edge-agent-1-joined"})
	assert.Equal(t, []string{"edge-manifests-applied"}, applied.hooks)
	assert.Equal(t, []resource.PropertyKey{"addon-flux", "addons", "secretManifests", "servers"},
		slices.Sorted(maps.Keys(input)))
	assert.True(t, input["secretManifests"].IsSecret())
	assert.Regexp(t, "^[0-9a-f]{64}$", input["addon-flux"].StringValue())
	assert.Equal(t, []resource.PropertyKey{"edge-server-1"}, slices.Collect(maps.Keys(input["servers"].ObjectValue())))
	assert.NotContains(t, fmt.Sprint(applied.inputs), "hunter2")

	config.Lifecycle.Teardown = true
	released := record(t, k3sProgram(config))["edge-manifests"]
	assert.Empty(t, released.hooks)
	assert.Equal(t, []string{"input"}, released.ignored)
}

// TestK3sMachines: what a VM of K3s is told by its drive, and what by its user data.
func TestK3sMachines(t *testing.T) {
	resources := record(t, k3sProgram(k3sConfig(t)))

	drive := resources["edge-agent-1-vm"].inputs["initialization"].ObjectValue()
	assert.Equal(t, "edge-agent-1-user-data-id", drive["userDataFileId"].StringValue())
	assert.Equal(t, "ide0", drive["interface"].StringValue())
	assert.Equal(t, "nocloud", drive["type"].StringValue())

	ip := drive["ipConfigs"].ArrayValue()[0].ObjectValue()["ipv4"].ObjectValue()
	assert.Equal(t, "192.168.20.21/24", ip["address"].StringValue())
	assert.Equal(t, "192.168.20.1", ip["gateway"].StringValue())

	vm := resources["edge-agent-1-vm"].inputs
	assert.True(t, vm["agent"].ObjectValue()["enabled"].BoolValue())
	assert.Equal(t, []resource.PropertyValue{
		resource.NewProperty("edge"), resource.NewProperty("k3s"), resource.NewProperty("worker"),
	}, vm["tags"].ArrayValue())
	assert.InDelta(t, 20, vm["networkDevices"].ArrayValue()[0].ObjectValue()["vlanId"].NumberValue(), 0)

	file := resources["edge-agent-1-user-data"].inputs["sourceRaw"]
	require.True(t, file.ContainsSecrets())

	// From outside the network, a server lets in the API and SSH, from where the configuration says, and an agent only
	// SSH.
	outside := func(node string) []string {
		var found []string

		for _, rule := range resources[node+"-rules"].inputs["rules"].ArrayValue() {
			r := rule.ObjectValue()
			if strings.Contains(r["source"].StringValue(), "192.168.10.0/24") {
				found = append(found, r["proto"].StringValue()+"/"+r["dport"].StringValue())
			}
		}

		return found
	}

	assert.Equal(t, []string{"tcp/22", "tcp/6443"}, outside("edge-server-1"))
	assert.Equal(t, []string{"tcp/22"}, outside("edge-agent-1"))
}

// TestK3sSecrets holds which inputs are secret. Everything else may be shown.
func TestK3sSecrets(t *testing.T) {
	config := k3sConfig(t)
	config.K3sToken = "a-token-of-the-operators"

	got := map[string][]string{}

	for name, r := range record(t, k3sProgram(config)) {
		for _, key := range slices.Sorted(maps.Keys(r.inputs)) {
			if r.inputs[key].ContainsSecrets() {
				got[name] = append(got[name], string(key))
			}
		}
	}

	assert.Equal(t, map[string][]string{
		"edge-proxmox": {"apiToken", "ssh"}, "edge-identity": {"input"}, "edge-administrator": {"input"},
		"edge-server-1-user-data": {"sourceRaw"}, "edge-agent-1-user-data": {"sourceRaw"},
	}, got)
}

// TestK3sOutputs: the kubeconfig is whole, the contract names its kind.
func TestK3sOutputs(t *testing.T) {
	values := make(chan map[string]any, 1)

	record(t, k3sProgram(k3sConfig(t), func(d *Deployment) {
		assert.ElementsMatch(t, []string{
			contract.OutputControlPlaneEndpoints, contract.OutputBootstrapNodes, contract.OutputNodeIPMap,
			contract.OutputNodeVMIDMap, contract.OutputContract,
			contract.OutputKubeconfig, contract.OutputKubernetesCredentials, contract.OutputCredentialsExpiry,
			contract.OutputNextSteps, contract.OutputK3s,
			contract.OutputSSHPrivateKey,
		}, slices.Collect(maps.Keys(d.Outputs)))

		d.Outputs.ToMapOutput().ApplyT(func(all map[string]any) error {
			values <- all

			return nil
		})
	}))

	all := <-values

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(all[contract.OutputKubeconfig].(string)))
	require.NoError(t, err)
	assert.Equal(t, "https://192.168.20.11:6443", config.Host)
	assert.Equal(t, map[string]string{
		"host": config.Host, "cluster_ca_certificate": string(config.CAData),
		"client_certificate": string(config.CertData), "client_key": string(config.KeyData),
	}, all[contract.OutputKubernetesCredentials])

	assert.Contains(t, all[contract.OutputSSHPrivateKey], "OPENSSH PRIVATE KEY")
	assert.Equal(t, "ssh -i ssh_private_key ubuntu@192.168.20.11", all[contract.OutputNextSteps].(map[string]any)["ssh"])
	assert.Equal(t, map[string]any{"k3s": "v1.34.2+k3s1", "kubernetes": "v1.34.2"},
		all[contract.OutputContract].(map[string]any)["versions"])
	assert.Equal(t, "k3s", all[contract.OutputContract].(map[string]any)["kind"])

	status := all[contract.OutputK3s].(map[string]any)
	assert.Equal(t, "https://192.168.20.11:6443", status["api"])
	agent := status["nodes"].(map[string]any)["edge-agent-1"].(map[string]any)
	joined := agent["joined"].(map[string]any)
	assert.NotEmpty(t, joined["uuid"])
	delete(joined, "uuid")
	assert.Equal(t, map[string]any{
		"health": "unknown", "host_name": "edge-agent-1", "ssh": "ssh ubuntu@192.168.20.21",
		"joined": map[string]any{
			"name": "edge-agent-1", "address": "192.168.20.21", "version": "v1.34.2+k3s1",
			"vmid": 501.0,
		},
	}, agent)
}

// TestContractOfK3s: each kind has its own version, and no other's.
func TestContractOfK3s(t *testing.T) {
	text := strings.NewReplacer(`"kind": "talos"`, `"kind": "k3s"`, `"talos": "v1.12.4"`,
		`"k3s": "v1.34.2+k3s1"`).Replace(aContract)

	c, err := contract.Read([]byte(text))
	require.NoError(t, err)
	assert.Equal(t, "v1.34.2+k3s1", c.Versions.K3s)

	_, err = contract.Read([]byte(strings.Replace(aContract, `"kind": "talos"`, `"kind": "k3s"`, 1)))
	require.EqualError(t, err, "output talos_bootstrap_contract does not have the contract's shape:\n  - versions: must "+
		"hold that of k3s, and of no other kind")
}
