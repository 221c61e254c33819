package export

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/contract"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

func readContract(t *testing.T, name string) *contract.Contract {
	t.Helper()

	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)

	c, err := contract.Read(text)
	require.NoError(t, err)

	return c
}

func golden(t *testing.T, name, got string) {
	t.Helper()

	path := "testdata/" + name
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644)) //nolint:gosec // a file of the repository
	}

	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, path)
}

// TestExport writes a contract with everything in it: a GPU, a node without an address.
func TestExport(t *testing.T) {
	c := readContract(t, "contract.json")

	lines, err := Talosctl(c)
	require.NoError(t, err)
	golden(t, "talosctl.sh", lines)

	inventory, err := Ansible(c)
	require.NoError(t, err)
	golden(t, "inventory.yaml", string(inventory))
}

// TestExportUnknown: without any address there is nothing to tell talosctl, and an inventory has the nodes all the
// same.
func TestExportUnknown(t *testing.T) {
	c := readContract(t, "unknown.json")

	_, err := Talosctl(c)
	require.EqualError(t, err, "no address of a control plane is known: talosctl has no endpoint to talk to")

	inventory, err := Ansible(c)
	require.NoError(t, err)
	golden(t, "unknown.yaml", string(inventory))
}
