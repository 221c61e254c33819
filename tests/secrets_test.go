package tests

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/debug"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoSecretInPlainText searches everything that a run leaves behind for the secrets it handled.
func TestNoSecretInPlainText(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	// From level 9 on the engine writes down every property as it is, which no program can prevent.
	out, level := newOutput(t), uint(8)

	result, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out),
		optup.Diff(), optup.DebugLogging(debug.LoggingOptions{LogLevel: &level, LogToStdErr: true}))
	require.NoError(t, err)

	kubeconfig, talosconfig := result.Outputs["kubeconfig"].Value.(string), result.Outputs["talosconfig"].Value.(string)

	secrets := map[string]string{"the API token": r.Lab.Credentials().TokenSecret}
	for name, key := range privateKeys(t, kubeconfig, talosconfig) {
		secrets[name] = key
	}

	require.Len(t, secrets, 3)
	maps.Copy(secrets, machineSecrets(t, cli(t, r, "stack", "export", "--show-secrets")))

	exported := cli(t, r, "stack", "export")
	places := map[string]string{
		"what the CLI printed": out.String(),
		"the exported state":   exported,
		"the shown outputs":    cli(t, r, "stack", "output", "--json"),
	}

	// State, history and backups, and the stack's settings.
	for _, dir := range []string{r.Backend.Dir(), r.Stack.Workspace().WorkDir()} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}

			text, err := os.ReadFile(path)
			places[path] = string(text)

			return err
		}))
	}

	require.Greater(t, len(places), 8)

	for _, e := range r.Lab.Journal().Entries() {
		places["the lab's journal"] += e.String() + "\n"
	}

	for place, text := range places {
		for name, secret := range secrets {
			assert.False(t, strings.Contains(text, secret), "%s holds %s", place, name)
		}
	}

	t.Run("they are encrypted in state", func(t *testing.T) {
		var kept struct {
			Deployment apitype.DeploymentV3 `json:"deployment"`
		}

		require.NoError(t, json.Unmarshal([]byte(exported), &kept))

		encrypted := map[string][]string{}

		for _, resource := range kept.Deployment.Resources {
			for _, key := range slices.Sorted(maps.Keys(resource.Outputs)) {
				text, err := json.Marshal(resource.Outputs[key])
				require.NoError(t, err)

				// Keys with underscores are the provider bridge's own.
				if strings.Contains(string(text), `"ciphertext"`) && !strings.HasPrefix(key, "__") {
					encrypted[resource.URN.Name()] = append(encrypted[resource.URN.Name()], key)
				}
			}
		}

		applied := []string{"clientConfiguration", "configPatches", "machineConfiguration", "machineConfigurationInput"}

		assert.Equal(t, map[string][]string{
			"talos-proxmox-dev":        {"kubeconfig", "talosconfig"},
			"k3s-dev":                  {"kubeconfig", "talosconfig"},
			"k3s-dev-proxmox":          {"apiToken"},
			"k3s-dev-secrets":          {"clientConfiguration", "machineSecrets"},
			"k3s-dev-control-1-config": applied,
			"k3s-dev-gpu-1-config":     applied,
			"k3s-dev-worker-1-config":  applied,
			"k3s-dev-kubeconfig":       {"clientConfiguration", "kubeconfigRaw", "kubernetesClientConfiguration"},
		}, encrypted)
	})
}

// privateKeys takes the private keys out of the credentials, as they would appear in a file.
func privateKeys(t *testing.T, kubeconfig, talosconfig string) map[string]string {
	t.Helper()

	found := map[string]string{}

	for name, in := range map[string]struct{ text, pattern string }{
		"the administrator's Kubernetes key": {kubeconfig, `client-key-data: (\S+)`},
		"the administrator's Talos key":      {talosconfig, `(?m)^\s+key: (\S+)`},
	} {
		m := regexp.MustCompile(in.pattern).FindStringSubmatch(in.text)
		require.NotNil(t, m, name)

		pem, err := base64.StdEncoding.DecodeString(m[1])
		require.NoError(t, err)
		require.Contains(t, string(pem), "PRIVATE KEY")

		found[name] = m[1]
	}

	return found
}

// machineSecrets takes the private parts of the cluster's secrets out of the state with everything decrypted: as they are
// kept, and private keys as text too, with its line breaks and with those that JSON has.
func machineSecrets(t *testing.T, exported string) map[string]string {
	t.Helper()

	var shown struct {
		Deployment apitype.DeploymentV3 `json:"deployment"`
	}

	require.NoError(t, json.Unmarshal([]byte(exported), &shown))

	found := map[string]string{}

	for _, resource := range shown.Deployment.Resources {
		if resource.Type == "talos:machine/secrets:Secrets" {
			private(found, "Secrets", resource.Outputs)
		}
	}

	// The keys of etcd, Kubernetes, its aggregator, its service accounts, Talos and the administrator, as they are; the
	// cluster's secret, the two tokens and the key of what etcd holds.
	require.GreaterOrEqual(t, len(found), 10, "%v", slices.Sorted(maps.Keys(found)))

	for name, secret := range maps.Clone(found) {
		if text, err := base64.StdEncoding.DecodeString(secret); err == nil && strings.Contains(string(text), "PRIVATE KEY") {
			escaped, err := json.Marshal(string(text))
			require.NoError(t, err)

			found[name+" as text"] = string(text)
			found[name+" as JSON"] = strings.Trim(string(escaped), `"`)
		}
	}

	return found
}

// private collects the private leaves of a value by their paths.
func private(found map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		// This is how a decrypted value is written: as JSON of its own.
		if text, ok := v["plaintext"].(string); ok {
			var plain any
			if json.Unmarshal([]byte(text), &plain) == nil {
				private(found, path, plain)
			}

			return
		}

		for key, inner := range v {
			private(found, path+"."+key, inner)
		}
	case string:
		names := []string{"key", "clientKey", "secret", "token", "bootstrapToken", "secretboxEncryptionSecret", "aescbcEncryptionSecret"}
		if len(v) >= 16 && slices.Contains(names, path[strings.LastIndex(path, ".")+1:]) {
			found[path] = v
		}
	}
}
