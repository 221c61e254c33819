package stacks

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/schema"
)

// TestOutputNames: what the program exports and what the schema knows are the same names.
func TestOutputNames(t *testing.T) {
	text, err := os.ReadFile("schema/outputs.schema.json")
	require.NoError(t, err)

	s, err := schema.Compile(text)
	require.NoError(t, err)

	var known []string
	for name := range schema.Follow(s).Properties {
		known = append(known, name)
	}

	assert.ElementsMatch(t, []string{
		contract.OutputControlPlaneEndpoints, contract.OutputBootstrapNodes, contract.OutputNodeIPMap,
		contract.OutputNodeVMIDMap, contract.OutputContract,
		contract.OutputKubeconfig, contract.OutputKubernetesCredentials, contract.OutputTalosconfig, contract.OutputCredentialsExpiry, contract.OutputNextSteps,
		contract.OutputSSHPrivateKey, contract.OutputK3s, contract.OutputSchematics, contract.OutputWorkerConfiguration,
		contract.OutputControlPlaneIPs, contract.OutputWorkerIPs, contract.OutputGPUWorkerIPs,
		contract.OutputControlPlaneVMIDs, contract.OutputWorkerVMIDs, contract.OutputGPUWorkerVMIDs,
		contract.OutputGPUWorkerPCIBDFs,
	}, known)
}

// aContract is a contract with everything that a contract can have.
const aContract = `{
	"schemaVersion": 1, "kind": "talos", "cluster": "atlas", "versions": {"talos": "v1.12.4", "kubernetes": "v1.34.2"},
	"talos_control_plane_endpoints": ["10.0.0.11"],
	"talos_bootstrap_nodes": {
		"control_plane": [{"name": "atlas-control-1", "vmid": 401, "ip": "10.0.0.11", "node": "pve1"}],
		"workers": [{"name": "atlas-worker-1", "vmid": 501, "node": "pve2"}],
		"gpu_workers": [{"name": "atlas-gpu-1", "vmid": 601, "ip": "fd00::31", "node": "pve2", "gpu_pci_bdf": "0000:01:00.0"}]
	},
	"talos_node_ip_map": {"atlas-control-1": "10.0.0.11", "atlas-gpu-1": "fd00::31"},
	"talos_node_vmid_map": {"atlas-control-1": 401, "atlas-worker-1": 501, "atlas-gpu-1": 601}
}`

// TestReadContract reads a contract by itself and out of a stack's outputs.
func TestReadContract(t *testing.T) {
	want := &contract.Contract{
		SchemaVersion: 1, Kind: "talos", Cluster: "atlas",
		Versions: contract.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"},
		Inventory: contract.Inventory{
			ControlPlaneEndpoints: []string{"10.0.0.11"},
			BootstrapNodes: contract.BootstrapNodes{
				ControlPlane: []contract.BootstrapNode{{Name: "atlas-control-1", VMID: 401, IP: new("10.0.0.11"), Host: "pve1"}},
				Workers:      []contract.BootstrapNode{{Name: "atlas-worker-1", VMID: 501, Host: "pve2"}},
				GPUWorkers: []contract.BootstrapNode{{
					Name: "atlas-gpu-1", VMID: 601, IP: new("fd00::31"), Host: "pve2",
					GPU: new("0000:01:00.0"),
				}},
			},
			NodeIPMap:   map[string]string{"atlas-control-1": "10.0.0.11", "atlas-gpu-1": "fd00::31"},
			NodeVMIDMap: map[string]int{"atlas-control-1": 401, "atlas-worker-1": 501, "atlas-gpu-1": 601},
		},
	}

	for _, text := range []string{aContract, `{"kubeconfig": "[secret]", "talos_bootstrap_contract": ` + aContract + `}`} {
		c, err := contract.Read([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, want, c)

		var names []string
		for _, n := range c.BootstrapNodes.All() {
			names = append(names, n.Name)
		}

		assert.Equal(t, []string{"atlas-control-1", "atlas-worker-1", "atlas-gpu-1"}, names)
	}

	// What is written is read again.
	text, err := json.Marshal(want)
	require.NoError(t, err)
	assert.JSONEq(t, aContract, string(text))
}

// TestContractIsStrict holds the whole message for everything that no contract may be.
func TestContractIsStrict(t *testing.T) {
	const shape = "output talos_bootstrap_contract does not have the contract's shape:"

	for name, c := range map[string]struct{ old, new, want string }{
		"nothing": {
			aContract, `{}`,
			"the stack has no output talos_bootstrap_contract: is it a stack of this program, and deployed?",
		},
		"no JSON": {
			aContract, `atlas`,
			"this is neither a contract nor the outputs of a stack; give what pulumi stack output --json prints: " +
				"invalid character 'a' looking for beginning of value",
		},
		"another version": {
			`"schemaVersion": 1`, `"schemaVersion": 2`,
			"output talos_bootstrap_contract has version 2 of the contract, this program reads version 1: use the program's " +
				"release that made it",
		},
		"another kind": {
			`"kind": "talos"`, `"kind": "rke2"`,
			shape + "\n" + `  - kind: must be one of "talos", "k3s" (given: rke2); choose one of them`,
		},
		"an unknown key": {
			`"cluster"`, `"clutser": "x", "cluster"`,
			shape + "\n" + "  - clutser: is not a key of the contract; did you mean \"cluster\"?",
		},
		"a missing key and a wrong type": {
			`"vmid": 401, "ip": "10.0.0.11"`, `"vmid": "401", "ip": "10.0.0.11"`,
			shape + "\n" +
				"  - talos_bootstrap_nodes.control_plane[0].vmid: must be a whole number (given: \"401\"); write 401",
		},
		"a group left out": {
			`"workers": [{"name": "atlas-worker-1", "vmid": 501, "node": "pve2"}],`, "",
			shape + "\n" + "  - talos_bootstrap_nodes.workers: is required; set it: workers without a GPU",
		},
		"an empty address": {
			`"ip": "fd00::31"`, `"ip": ""`,
			shape + "\n" + `  - talos_bootstrap_nodes.gpu_workers[0].ip: must be ipv4 or ipv6 (given: ""); change the value`,
		},
		"a name that a shell would read": {
			`"name": "atlas-worker-1"`, `"name": "$(id)"`,
			shape + "\n" + "  - talos_bootstrap_nodes.workers[0].name: '$(id)' does not match pattern " +
				"'^[a-z0-9]([a-z0-9-]*[a-z0-9])?$'; change the value",
		},
		"a GPU that is none": {
			`"0000:01:00.0"`, `"01:00.0"`,
			shape + "\n" +
				`  - talos_bootstrap_nodes.gpu_workers[0].gpu_pci_bdf: '01:00.0' does not match pattern '^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(\\.[0-7])?$'; change the value`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(aContract, c.old, c.new, 1)
			require.NotEqual(t, aContract, text)

			_, err := contract.Read([]byte(text))
			assert.EqualError(t, err, c.want)
		})
	}
}

// TestOutputsSchema: the previous lists come together or not at all, and nothing else is there.
func TestOutputsSchema(t *testing.T) {
	text, err := os.ReadFile("schema/outputs.schema.json")
	require.NoError(t, err)

	s, err := schema.Compile(text)
	require.NoError(t, err)

	var c map[string]any
	require.NoError(t, json.Unmarshal([]byte(aContract), &c))

	all := map[string]any{contract.OutputContract: c}
	for _, shared := range []string{
		contract.OutputControlPlaneEndpoints, contract.OutputBootstrapNodes,
		contract.OutputNodeIPMap, contract.OutputNodeVMIDMap,
	} {
		all[shared] = c[shared]
	}

	require.NoError(t, s.Validate(all))

	legacy := []string{
		contract.OutputControlPlaneIPs, contract.OutputWorkerIPs, contract.OutputGPUWorkerIPs,
		contract.OutputControlPlaneVMIDs, contract.OutputWorkerVMIDs, contract.OutputGPUWorkerVMIDs,
		contract.OutputGPUWorkerPCIBDFs,
	}

	for i, name := range legacy {
		all[name] = []any{}

		if i < len(legacy)-1 {
			assert.Error(t, s.Validate(all), fmt.Sprint(legacy[:i+1]))
		}
	}

	require.NoError(t, s.Validate(all))

	all["control_plane_endpoint"] = "10.0.0.11"
	assert.ErrorContains(t, s.Validate(all), "additional properties 'control_plane_endpoint' not allowed")
}
