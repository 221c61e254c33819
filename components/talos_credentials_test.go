package components

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/machineconfig"
)

// TestSecretsBundle: what the provider holds of a bundle becomes that bundle again, and Talos reads it.
func TestSecretsBundle(t *testing.T) {
	want, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_3)
	require.NoError(t, err)

	made, err := yaml.Marshal(want)
	require.NoError(t, err)

	taken, err := machineconfig.ReadSecrets(string(made))
	require.NoError(t, err)

	held := heldOf(taken)

	got, err := bundleOf(held)
	require.NoError(t, err)

	text, err := yaml.Marshal(got)
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))

	read, err := secrets.LoadBundle(path)
	require.NoError(t, err)
	require.NoError(t, read.Validate(config.TalosVersionCurrent))

	read.Clock, want.Clock = nil, nil
	assert.Equal(t, want, read)

	held.Certs.Etcd.Key = "?"
	_, err = bundleOf(held)
	assert.EqualError(t, err, "the machine secrets hold what is not base64")
}
