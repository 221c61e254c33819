package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUntrustedStackFile: a stack file that a stranger proposes is previewed on a machine with secrets. Nothing outside
// the project is read by it, whatever it names and wherever it may name a file.
func TestUntrustedStackFile(t *testing.T) {
	const secret = "-----BEGIN OPENSSH PRIVATE KEY-----"

	outside, project := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "id"), []byte(secret), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(project, "patches"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(outside, "id"), filepath.Join(project, "patches", "link.yaml")))
	require.NoError(t, os.Symlink(outside, filepath.Join(project, "patches", "dir")))
	require.NoError(t, os.Symlink("dir/id", filepath.Join(project, "patches", "twice.yaml")))

	relative, err := filepath.Rel(project, filepath.Join(outside, "id"))
	require.NoError(t, err)

	files := []string{
		filepath.Join(outside, "id"), relative, "patches/" + strings.Repeat("../", 20) + "etc/passwd", "/proc/self/environ",
		"/dev/stdin", "/etc/shadow",
		"patches/link.yaml", "patches/dir/id", "patches/twice.yaml", "~/.ssh/id_rsa", "$HOME/.ssh/id_rsa",
		"file://" + outside + "/id", "patches",
	}

	places := map[string]string{
		"cluster.patches[0]":               "cluster",
		"cluster.manifests[0]":             "manifests",
		"cluster.trustedCAs[0]":            "trustedCAs",
		"pools.control.patches[0]":         "pool",
		"pools.control.nodes.1.patches[0]": "node",
		"pools.gpu.gpus.1.patches[0]":      "gpu",
	}

	for path, place := range places {
		for _, file := range files {
			t.Run(path+" "+file, func(t *testing.T) {
				_, err := LoadText([]byte(fileIn(place, file)), project)
				require.Error(t, err)
				assert.Contains(t, err.Error(), "  - "+path+": must be ")
				assert.Contains(t, err.Error(), "or a file inside the project")
				assert.NotContains(t, err.Error(), secret)
				assert.NotContains(t, err.Error(), "root:")
			})
		}
	}

	// What hosts and nodes fetch, or a datastore has, is no file here.
	key := func(key string) string { return fileIn("", "") + "  talos-proxmox:" + key + "\n" }

	for path, c := range map[string]struct{ text, rule string }{
		"cluster.recoverFrom": {fileIn("recoverFrom", "{file}"), "must be a snapshot of etcd inside the project: "},
		"image.factory.url":   {key("image: { factory: { url: '{file}' } }"), "must be a URL"},
		"image.iso.url":       {key("image: { source: iso, iso: { url: '{file}' } }"), "must be a URL"},
		"image.iso.volume": {
			key("image: { source: iso, iso: { volume: '{file}' } }"),
			"must name an ISO file on a datastore",
		},
		"tailscale.loginServer": {key("tailscale: { loginServer: '{file}' }"), "must be a URL"},
		"proxmox.endpoint":      {strings.Replace(fileIn("", ""), "https://pve.lan:8006", "'{file}'", 1), "must be"},
	} {
		for _, file := range files {
			t.Run(path+" "+file, func(t *testing.T) {
				_, err := LoadText([]byte(strings.ReplaceAll(c.text, "{file}", file)), project)
				require.Error(t, err)
				assert.Contains(t, err.Error(), "  - "+path+": "+c.rule)
				assert.NotContains(t, err.Error(), secret)
				assert.NotContains(t, err.Error(), "root:")
			})
		}
	}

	// Nothing in a text is expanded, and what looks like the name of a file to the provider is none
	// (machineconfig.TestPatchIsNoFile).
	t.Run("a text stays as it is", func(t *testing.T) {
		const text = "machine: { env: { X: $HOME ${HOME} $(id) `id` @/etc/passwd ~ } }"

		c, err := LoadText([]byte(fileIn("cluster", text)), project)
		require.NoError(t, err)
		assert.Equal(t, text, c.Cluster.Patches[0].Text)
	})

	for _, dir := range []string{"../elsewhere", "/tmp/elsewhere", "a/../../elsewhere"} {
		t.Run("outputs.files.dir "+dir, func(t *testing.T) {
			_, err := LoadText([]byte(fileIn("outputs", dir)), project)
			require.ErrorContains(t, err, "outputs.files.dir: must be a directory inside the project")
		})
	}
}

// fileIn is a stack file that names a file in one place.
func fileIn(place, file string) string {
	at := func(p, key string) string {
		if p != place {
			return ""
		}

		return ", " + key + ": [" + inQuotes(file) + "]"
	}

	outputs := ""
	if place == "outputs" {
		outputs = "\n  talos-proxmox:outputs: { files: { dir: " + inQuotes(file) + ", write: [kubeconfig] } }"
	}

	from := ""
	if place == "recoverFrom" {
		from = ", recoverFrom: " + inQuotes(file)
	}

	return `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: home, versions: { talos: v1.12.4, kubernetes: v1.34.2 }` +
		from + at("cluster", "patches") + at("manifests", "manifests") + at("trustedCAs", "trustedCAs") + ` }
  talos-proxmox:network: { cidr: 192.168.10.0/24, gateway: 192.168.10.1 }
  talos-proxmox:pools:
    control: { role: controlplane, addresses: 192.168.10.11-13, nodes: { "1": { cores: 2` + at("node", "patches") + ` } }` + at("pool", "patches") + ` }
    gpu: { role: worker, addresses: 192.168.10.31-33, gpus: { "1": { bdf: "0000:01:00.0"` + at("gpu", "patches") + ` } } }` + outputs + "\n"
}

func inQuotes(text string) string { return "'" + text + "'" }
