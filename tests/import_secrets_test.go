package tests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	stackconfig "talos-proxmox/stacks/config"
)

// TestImportSecrets brings a cluster up with an identity that others made: of today, and of a time when what etcd
// holds was encrypted otherwise. It runs with exactly these secrets, and nothing of them is kept in plain text.
func TestImportSecrets(t *testing.T) {
	t.Parallel()

	for name, contract := range map[string]*config.VersionContract{
		"of today":     config.TalosVersionCurrent,
		"with AES-CBC": config.TalosVersion1_2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			text := newBundle(t, contract)

			var bundle secrets.Bundle

			require.NoError(t, yaml.Unmarshal([]byte(text), &bundle))
			assert.Equal(t, name == "with AES-CBC", bundle.Secrets.SecretboxEncryptionSecret == "")
			assert.Equal(t, name == "with AES-CBC", bundle.Secrets.AESCBCEncryptionSecret != "")

			r := rehearse(t, stackFile(t, string(readFile(t, devWith(t)))+
				"  talos-proxmox:outputs: { files: { write: [secrets.yaml] } }\n"))
			require.NoError(t, r.Backend.KeepLogs())
			require.NoError(t, r.Stack.SetConfig(t.Context(), stackconfig.Project+":machineSecrets",
				auto.ConfigValue{Value: text, Secret: true}))

			outputs := upResult(t, r.Stack).Outputs
			require.NoError(t, r.WaitReady(t.Context(), wait))

			// The year of a taken over administrator begins with a quarter.
			requireValid(t, r, outputs, 270*day)

			running := secretsOf(t, r, outputs)
			running.Clock = nil
			assert.Equal(t, &bundle, running)

			requireFiles(t, r, "secrets.yaml")
			assert.Equal(t, text, string(readFile(t, filepath.Join(r.Stack.Workspace().WorkDir(), "talos", "secrets.yaml"))))

			exported := cli(t, r, "stack", "export")
			assert.NotContains(t, exported, "talos:machine/secrets:Secrets", "no others are made")

			var given any

			require.NoError(t, yaml.Unmarshal([]byte(text), &given))

			planted := map[string]string{}
			private(planted, "the bundle", given)
			require.Len(t, planted, 9, "five keys, the cluster's secret, two tokens, and what encrypts etcd")
			requireHidden(t, asText(t, planted), map[string]string{"the exported state": exported}, left(t, r))

			requireSettled(t, r.Stack)
			destroy(t, r.Stack)
		})
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()

	text, err := os.ReadFile(path)
	require.NoError(t, err)

	return text
}
