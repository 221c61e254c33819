package export

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/golden"
)

func readContract(t *testing.T, name string) *contract.Contract {
	t.Helper()

	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)

	c, err := contract.Read(text)
	require.NoError(t, err)

	return c
}

// TestExport writes a contract with everything in it: a GPU, a node without an address.
func TestExport(t *testing.T) {
	c := readContract(t, "contract.json")

	lines, err := Talosctl(c)
	require.NoError(t, err)
	golden.Check(t, filepath.Join("testdata", "talosctl.sh"), lines)

	inventory, err := Ansible(c)
	require.NoError(t, err)
	golden.Check(t, filepath.Join("testdata", "inventory.yaml"), string(inventory))
}

// TestExportUnknown: without any address there is nothing to tell talosctl, and an inventory has the nodes all the
// same.
func TestExportUnknown(t *testing.T) {
	c := readContract(t, "unknown.json")

	_, err := Talosctl(c)
	require.EqualError(t, err, "no address of a control plane is known: talosctl has no endpoint to talk to")

	inventory, err := Ansible(c)
	require.NoError(t, err)
	golden.Check(t, filepath.Join("testdata", "unknown.yaml"), string(inventory))
}
