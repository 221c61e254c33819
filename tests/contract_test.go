package tests

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
)

// TestContract holds the shape of every output, and reads them from a second stack.
func TestContract(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	outputs := upResult(t, r.Stack).Outputs
	requireOutputs(t, outputs)

	control, worker, gpu := addressOf(r, "k3s-dev-control-1"), addressOf(r, "k3s-dev-worker-1"),
		addressOf(r, "k3s-dev-gpu-1")
	endpoints := fmt.Sprintf(`["%s"]`, control)
	nodes := fmt.Sprintf(`{
		"control_plane": [{"name": "k3s-dev-control-1", "vmid": 401, "ip": "%s", "node": "pve"}],
		"workers": [{"name": "k3s-dev-worker-1", "vmid": 501, "ip": "%s", "node": "pve"}],
		"gpu_workers": [{"name": "k3s-dev-gpu-1", "vmid": 601, "ip": "%s", "node": "pve", "gpu_pci_bdf": "0000:01:00.0"}]}`, control, worker, gpu)
	ips := fmt.Sprintf(`{"k3s-dev-control-1": "%s", "k3s-dev-worker-1": "%s", "k3s-dev-gpu-1": "%s"}`, control, worker,
		gpu)
	vmids := `{"k3s-dev-control-1": 401, "k3s-dev-worker-1": 501, "k3s-dev-gpu-1": 601}`

	for name, want := range map[string]string{
		"talos_control_plane_endpoints": endpoints,
		"talos_bootstrap_nodes":         nodes,
		"talos_node_ip_map":             ips,
		"talos_node_vmid_map":           vmids,
		"talos_bootstrap_contract": fmt.Sprintf(`{
			"schemaVersion": 1, "kind": "talos", "cluster": "k3s-dev",
			"versions": {"talos": "v1.12.4", "kubernetes": "v1.34.2"},
			"talos_control_plane_endpoints": %s, "talos_bootstrap_nodes": %s,
			"talos_node_ip_map": %s, "talos_node_vmid_map": %s}`, endpoints, nodes, ips, vmids),
	} {
		text, err := json.Marshal(outputs[name].Value)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(text), name)
		assert.False(t, outputs[name].Secret, name)
	}

	assert.True(t, outputs["kubeconfig"].Secret)
	assert.True(t, outputs["talosconfig"].Secret)
	assert.True(t, outputs["kubernetes_credentials"].Secret)
	assert.Len(t, outputs, 10)

	t.Run("a second stack reads it", func(t *testing.T) { readFromSecondStack(t, r, worker) })
}

func readFromSecondStack(t *testing.T, r *rehearsal.Rehearsal, worker string) {
	t.Helper()

	reader := func(ctx *pulumi.Context) error {
		ref, err := pulumi.NewStackReference(ctx, "organization/"+config.Project+"/dev", nil)
		if err != nil {
			return err
		}

		read, err := contract.ReadOutputs(ref)
		if err != nil {
			return err
		}

		// The contract holds plain values: they may shape the program.
		for _, n := range read.Contract.BootstrapNodes.Workers {
			ctx.Export("worker-"+n.Name, pulumi.String(*n.IP))
		}

		ctx.Export("kubeconfig", read.Kubeconfig)

		return nil
	}

	second, err := r.Backend.InlineStack(t.Context(), "reader", "dev", reader, nil)
	require.NoError(t, err)

	got := upResult(t, second).Outputs
	assert.Equal(t, worker, got["worker-k3s-dev-worker-1"].Value)
	assert.True(t, got["kubeconfig"].Secret)
	assert.Contains(t, got["kubeconfig"].Value, "client-certificate-data")
}
