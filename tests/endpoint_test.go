package tests

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEndpointGate: a cluster is up only when its API answers where the stack says. Until then there is no kubeconfig
// and no file of it, and the nodes are configured and started all the same; what is mended is found mended.
func TestEndpointGate(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, string(
		readFile(t, devWith(t, "    name: k3s-dev\n",
			"    name: k3s-dev\n    endpoint: { mode: dns, host: api.invalid }\n")))+
		"  talos-proxmox:lifecycle: { readyTimeout: 10s }\n  talos-proxmox:outputs: { files: { write: [kubeconfig] } }\n"))

	assert.Contains(t, failUp(t, r.Stack), "the Kubernetes API to answer at https://api.invalid:6443")
	assert.NoFileExists(t, filepath.Join(r.Stack.Workspace().WorkDir(), "talos", "kubeconfig"))
	assert.Len(t, calls(r, "/Bootstrap"), 1, "nodes are spoken to by their own addresses")
	assert.Len(t, calls(r, "/ApplyConfiguration"), 4, "by the program, and then by the provider")

	set(t, r.Stack, "cluster.endpoint.mode", "firstControlPlane")
	unset(t, r.Stack, "cluster.endpoint.host")

	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, addressOf(r, "k3s-dev-control-1")+":6443", endpointOf(t, outputs))
	assert.Len(t, calls(r, "/Bootstrap"), 1)
	requireFiles(t, r, "kubeconfig")
	requireNoChange(t, r.Stack)
	destroy(t, r.Stack)
}
