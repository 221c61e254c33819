package tests

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/files"
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

	t.Run("files of another stack", func(t *testing.T) {
		dir := filepath.Join(r.Stack.Workspace().WorkDir(), "talos")
		kubeconfig, marker := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, files.Marker)

		var owner files.Owner

		require.NoError(t, json.Unmarshal(readFile(t, marker), &owner))
		assert.Equal(t, r.Stack.Name(), owner.Stack)
		assert.Equal(t, "k3s-dev", owner.Cluster)

		require.NoError(t, os.Remove(marker))

		owner.Stack = "prod"
		require.NoError(t, files.Claim(r.Stack.Workspace().WorkDir(), "talos", owner, nil, nil))
		require.NoError(t, os.WriteFile(kubeconfig, []byte("of prod"), 0o600))

		const refused = "/prod (given: ./talos); name another directory"

		assert.Contains(t, failPreview(t, r.Stack), refused)
		assert.Contains(t, failUp(t, r.Stack), "and holds files of cluster k3s-dev of stack ")
		assert.Equal(t, "of prod", string(readFile(t, kubeconfig)))

		set(t, r.Stack, "outputs.files.dir", "./dev")
		up(t, r.Stack)
		assert.FileExists(t, filepath.Join(filepath.Dir(dir), "dev", "kubeconfig"))
		requireNoChange(t, r.Stack)

		unset(t, r.Stack, "outputs.files.dir")
		require.NoError(t, os.Remove(marker))
		up(t, r.Stack)

		kept, err := filepath.Glob(kubeconfig + ".before-*")
		require.NoError(t, err)
		require.Len(t, kept, 1)
		assert.Equal(t, "of prod", string(readFile(t, kept[0])))
		require.NoError(t, os.Remove(kept[0]))

		requireFiles(t, r, "kubeconfig")
		assert.NotEqual(t, "of prod", string(readFile(t, kubeconfig)))
	})

	destroy(t, r.Stack)
}

// TestEndpointMoves gives a cluster that runs another virtual address: not one that a machine has, and the kubeconfig
// follows.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	was := r.Plan.VIP.String()
	now := strings.TrimSuffix(was, ".9") + ".8"

	foreign, err := net.Listen("tcp", net.JoinHostPort(now, "6443"))
	require.NoError(t, err)

	before := r.Lab.World().Snapshot()

	set(t, r.Stack, "cluster.endpoint.address", now)

	const taken = "a machine answers there already, on port 6443"

	assert.Contains(t, failPreview(t, r.Stack), taken)
	assert.Contains(t, failUp(t, r.Stack), taken)
	assert.Equal(t, before, r.Lab.World().Snapshot())

	require.NoError(t, foreign.Close())
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Contains(t, outputs[contract.OutputKubeconfig].Value, "https://"+now+":6443")
	requireNoChange(t, r.Stack)
}
