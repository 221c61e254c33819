package tests

import (
	"os"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPreview holds what a preview finds before anything exists: it needs no Proxmox VE, says what it could not check
// without one, and lets Talos check the machine configuration.
func TestPreview(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")

	t.Run("without Proxmox VE", func(t *testing.T) {
		stack, err := r.Open(t.Context(), "offline")
		require.NoError(t, err)
		set(t, stack, "proxmox.endpoint", "https://127.0.0.1:9")

		out := newOutput(t)
		result, err := stack.Preview(t.Context(), optpreview.ProgressStreams(out))
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"create": 18}, previewed(result.ChangeSummary))
		assert.Contains(t, out.String(),
			"Proxmox VE at https://127.0.0.1:9 cannot be reached: dial tcp 127.0.0.1:9: connect: connection refused; "+
				"credentials and privileges, hosts, their memory and clocks, datastores, bridges, VMIDs, templates, images, "+
				"extensions, GPUs "+
				"and addresses were not checked")
	})

	t.Run("a patch that Talos refuses", func(t *testing.T) {
		for name, c := range map[string]struct{ patch, want string }{
			"unknown field": {
				"machine:\n  installl: {}\n",
				"cluster.patches[0]: is not a patch that Talos can apply: error decoding document /v1alpha1/ (line 1): " +
					"unknown keys found during decoding: machine.installl (given: cluster.patches[0], for k3s-dev-control-1); " +
					"correct the patch",
			},
			"impossible value": {
				"machine:\n  install:\n    disk: \"\"\n    image: \"\"\n    diskSelector:\n      size: huge\n",
				"cluster.patches[0]: is not a patch that Talos can apply: ",
			},
			"invalid configuration": {
				"machine:\n  kubelet:\n    nodeIP:\n      validSubnets: [nowhere]\n",
				"cluster.patches[0]: Talos refuses the machine configuration: v1alpha1.Config: kubelet nodeIP subnet is not " +
					"valid: \"nowhere\" ",
			},
		} {
			t.Run(name, func(t *testing.T) {
				stack, err := r.Open(t.Context(), rehearsalName(name))
				require.NoError(t, err)
				set(t, stack, "cluster.patches[0]", c.patch)

				out := newOutput(t)
				_, err = stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
				require.Error(t, err)
				assert.Contains(t, out.String(), c.want)
			})
		}
	})

	assert.Empty(t, calls(r, "clone"), "a preview makes nothing")
}

// TestCredentialFiles holds that kubeconfig and talosconfig are for their owner alone.
func TestCredentialFiles(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	up(t, r.Stack)

	files, err := r.WriteCredentials(t.Context(), t.TempDir())
	require.NoError(t, err)

	for _, path := range []string{files.Kubeconfig, files.Talosconfig} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), path)
		assert.NotZero(t, info.Size())
	}
}
