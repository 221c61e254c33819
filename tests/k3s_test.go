package tests

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
)

// TestK3s brings the example up: the kubeconfig works, the contract names its kind, and nothing is left when it is destroyed.
func TestK3s(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s"))
	result := up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	contract := contractOf(t, result)
	assert.Equal(t, "k3s", contract.Kind)
	assert.Equal(t, stacks.Versions{K3s: "v1.34.2+k3s1", Kubernetes: "v1.34.2"}, contract.Versions)

	requireNoChange(t, r.Stack)
	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}
