package tests

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/contract"
)

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
