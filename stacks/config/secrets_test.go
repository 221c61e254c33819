package config

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/machineconfig"
)

// TestKeyOfTheTailnet: the environment goes before the stack, only where there is a tailnet, and no error shows a key.
func TestKeyOfTheTailnet(t *testing.T) {
	all, err := readConfig("../examples/Pulumi.atlas.yaml")
	require.NoError(t, err)
	values, _, err := valuesOf(all)
	require.NoError(t, err)

	values["proxmoxTokenSecret"] = "0b3c-1d"

	secret := []string{"talos-proxmox:proxmoxTokenSecret", "talos-proxmox:tailscaleAuthKey"}

	load := func(values map[string]string) (c Config, err error) {
		prefixed := map[string]string{}
		for key, value := range values {
			prefixed["talos-proxmox:"+key] = value
		}

		failed := pulumi.RunErr(func(ctx *pulumi.Context) error {
			c, err = Load(ctx, t.TempDir())

			return nil
		}, pulumi.WithMocks("talos-proxmox", "atlas", nothing{}), func(info *pulumi.RunInfo) {
			info.Config, info.ConfigSecretKeys = prefixed, secret
		})
		require.NoError(t, failed)

		return c, err
	}

	_, err = load(values)
	require.EqualError(t, err, "the configuration has 1 problem:\n  - tailscaleAuthKey: is required: tailscale is set; "+
		"run: pulumi config set --secret tailscaleAuthKey, or set HEADSCALE_AUTH_KEY in the environment")

	t.Setenv("HEADSCALE_AUTH_KEY", "from-the-environment")

	c, err := load(values)
	require.NoError(t, err)
	require.Equal(t, "from-the-environment", c.TailscaleAuthKey)

	values["tailscaleAuthKey"] = "from-the-stack"
	c, err = load(values)
	require.NoError(t, err)
	require.Equal(t, "from-the-environment", c.TailscaleAuthKey)

	without := maps.Clone(values)
	delete(without, "tailscale")
	delete(without, "tailscaleAuthKey")

	c, err = load(without)
	require.NoError(t, err)
	require.Empty(t, c.TailscaleAuthKey)

	secret = nil
	_, err = load(values)
	require.EqualError(t, err, "the configuration has 2 problems:\n"+
		"  - proxmoxTokenSecret: is in plain text in the stack's file; run: pulumi config set --secret proxmoxTokenSecret, "+
		"with a new secret if others have seen the file\n"+
		"  - tailscaleAuthKey: is in plain text in the stack's file; run: pulumi config set --secret tailscaleAuthKey, "+
		"with a new secret if others have seen the file")

	secret = []string{"talos-proxmox:proxmoxTokenSecret", "talos-proxmox:tailscaleAuthKey"}

	t.Setenv("HEADSCALE_AUTH_KEY", "two words")

	_, err = load(values)
	require.EqualError(t, err, "the configuration has 1 problem:\n  - tailscaleAuthKey: does not look like a key: "+
		"it contains spaces or non-ASCII characters; "+
		"run: pulumi config set --secret tailscaleAuthKey, or correct HEADSCALE_AUTH_KEY")
}

// TestSecretKeys: all texts of a configuration by themselves are secrets.
func TestSecretKeys(t *testing.T) {
	var keys []string

	for field := range reflect.TypeFor[Config]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); field.Type.Kind() == reflect.String && name != "-" {
			keys = append(keys, name)
		}
	}

	require.ElementsMatch(t, keys, SecretKeys)
}

// TestPlainSecretInFile: what an update refuses is refused where the file is shown or checked, by its key alone.
func TestPlainSecretInFile(t *testing.T) {
	text, err := os.ReadFile("../examples/Pulumi.smallest.yaml")
	require.NoError(t, err)

	for _, key := range SecretKeys {
		refused := "  - " + key + ": is in plain text in the stack's file; run: pulumi config set --secret " + key

		_, err := LoadText(append(text[:len(text):len(text)], "  talos-proxmox:"+key+": planted-1\n"...), "../examples")
		require.ErrorContains(t, err, refused)
		require.NotContains(t, err.Error(), "planted-1")

		// Pulumi takes a key without a namespace for the project's.
		_, err = LoadText(append(text[:len(text):len(text)], "  "+key+": [planted-1]\n"...), "../examples")
		require.ErrorContains(t, err, refused)

		_, err = LoadText(append(text[:len(text):len(text)], "  talos-proxmox:"+key+": { secure: v1:x }\n"...), "../examples")
		if err != nil {
			require.NotContains(t, err.Error(), "plain text")
		}
	}
}

// TestPrivateKey: what the provider could not use is refused before anything is made, and never quoted.
func TestPrivateKey(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)

	open, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("secret"))
	require.NoError(t, err)

	for key, want := range map[string]string{
		"": "", string(pem.EncodeToMemory(open)): "",
		string(pem.EncodeToMemory(locked)): "sshPrivateKey: is locked with a passphrase, which the program cannot enter; " +
			"make a key for this program alone, without one",
		"~/.ssh/id_ed25519": "sshPrivateKey: is not a private key of OpenSSH; run: pulumi config set --secret sshPrivateKey < " +
			"~/.ssh/<key>",
	} {
		got := ""
		for _, p := range (Config{SSHPrivateKey: key}).checkSecrets() {
			got += p.String()
		}

		require.Equal(t, want, got)
	}
}

// TestMachineSecrets: what is not a secrets bundle is refused and not shown; one that is encrypted in the file is not
// looked at.
func TestMachineSecrets(t *testing.T) {
	c := Config{MachineSecrets: "cluster: {id: hunter2}"}
	require.EqualError(t, c.checkSecrets().Err(),
		"the configuration has 1 problem:\n  - machineSecrets: must be a Talos secrets bundle: "+
			"cluster.secret is required; secrets is required; trustdinfo is required; certs is required; "+
			"run: pulumi config set --secret machineSecrets < secrets.yaml")

	whole, err := machineconfig.ThrowAwaySecrets()
	require.NoError(t, err)

	for _, text := range []string{whole, Placeholder} {
		require.NoError(t, Config{MachineSecrets: text}.checkSecrets().Err())
	}
}

// TestOffline: a variable of the environment keeps previews from asking Proxmox VE.
func TestOffline(t *testing.T) {
	for value, want := range map[string]string{"": "", "1": "TALOS_PROXMOX_OFFLINE is set"} {
		t.Setenv("TALOS_PROXMOX_OFFLINE", value)

		config, err := LoadFile("../examples/Pulumi.atlas.yaml")
		require.NoError(t, err)
		assert.Equal(t, want, config.Access().Offline)
	}
}
