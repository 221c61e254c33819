package tests

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
)

// TestRelease writes a release of the package for this platform, with the plugin that other tests use, and has pulumi
// install its archive.
func TestRelease(t *testing.T) {
	t.Parallel()

	backend := newBackend(t)

	plugin, err := thePlugin()
	require.NoError(t, err)

	command, dist := compile(t, "./stacks/provider/release"), filepath.Join(t.TempDir(), "dist")
	release := func(args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), command, append([]string{"--project", root, "--out", dist}, args...)...)
		printed, err := c.CombinedOutput()

		return string(printed), err
	}

	printed, err := release("--plugin", plugin)
	require.Error(t, err)
	assert.Contains(t, printed, "--plugin: is the plugin of one platform")

	printed, err = release("--platforms", "linux")
	require.Error(t, err)
	assert.Contains(t, printed, `--platforms: must be platforms like linux/amd64, separated by commas (given: "linux")`)
	assert.NoDirExists(t, dist)

	ours := []string{"--plugin", plugin, "--platforms", runtime.GOOS + "/" + runtime.GOARCH}

	printed, err = release(ours...)
	require.NoError(t, err, printed)

	printed, err = release(ours...)
	require.Error(t, err)
	assert.Contains(t, printed, "--out: must be an empty directory")

	var about struct{ Version string }

	schema := readFile(t, filepath.Join(root, "stacks/provider/schema.json"))
	require.NoError(t, json.Unmarshal(schema, &about))

	archive := fmt.Sprintf("pulumi-resource-talos-proxmox-v%s-%s-%s.tar.gz", about.Version, runtime.GOOS, runtime.GOARCH)
	sums := string(readFile(t, filepath.Join(dist, "pulumi-talos-proxmox_"+about.Version+"_checksums.txt")))

	for _, name := range []string{archive, "schema.json", "docs/_index.md", "docs/installation-configuration.md"} {
		text := readFile(t, filepath.Join(dist, name))
		assert.Contains(t, sums, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name))
	}

	assert.Equal(t, 4, strings.Count(sums, "\n"))
	assert.Equal(t, schema, readFile(t, filepath.Join(dist, "schema.json")))

	pulumi := func(args ...string) string {
		c := exec.CommandContext(t.Context(), backend.CLI(), args...)
		c.Dir, c.Env = t.TempDir(), backend.Environ()
		printed, err := c.Output()
		require.NoError(t, err, "%s\n%v", printed, err)

		return string(printed)
	}

	pulumi("plugin", "install", "resource", "talos-proxmox", about.Version, "--file", filepath.Join(dist, archive))

	var shown map[string]any

	require.NoError(t, json.Unmarshal([]byte(pulumi("package", "get-schema", "talos-proxmox")), &shown))
	assert.Equal(t, about.Version, shown["version"])
	assert.Contains(t, shown["resources"], "talos-proxmox:index:Cluster")

	// A program finds it without being told where it is.
	require.NoError(t, backend.AddYAML(t.Context()))

	dir := t.TempDir()
	example := readFile(t, filepath.Join(root, "stacks/examples/yaml/Pulumi.yaml"))
	plugins := regexp.MustCompile(`(?m)^plugins:\n(  .*\n)+`)
	require.Len(t, plugins.FindAll(example, -1), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), plugins.ReplaceAll(example, nil), 0o600))

	stack, err := backend.LocalStack(t.Context(), dir, "test", auto.ConfigMap{
		"proxmoxTokenSecret": {Value: config.Placeholder, Secret: true},
	})
	require.NoError(t, err)
	stack.Workspace().SetEnvVar("TALOS_PROXMOX_OFFLINE", "1")

	assert.Contains(t, previewOf(t, stack), "home-control-1-vm")
}
