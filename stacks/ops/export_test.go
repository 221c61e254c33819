package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ops runs the command as a shell would, and returns what it printed.
func ops(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()

	var out, complaints bytes.Buffer

	c := command(&out)
	c.SetArgs(args)
	c.SetIn(strings.NewReader(stdin))
	c.SetErr(&complaints)
	err = c.ExecuteContext(t.Context())

	return out.String(), complaints.String(), err
}

func file(t *testing.T, parts ...string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)

	return string(text)
}

// TestExport writes the contract in each form, from a file and from standard input.
func TestExport(t *testing.T) {
	const contract = "../export/testdata/contract.json"

	for form, want := range map[string]string{
		"talosctl": file(t, "../export/testdata/talosctl.sh"),
		"ansible":  file(t, "../export/testdata/inventory.yaml"),
	} {
		out, _, err := ops(t, "", "export", form, contract)
		require.NoError(t, err)
		assert.Equal(t, want, out)

		out, _, err = ops(t, file(t, contract), "export", form)
		require.NoError(t, err)
		assert.Equal(t, want, out)
	}

	out, _, err := ops(t, "", "export", "nodes.json", "--vip", "10.0.0.20", "--login-server",
		"https://headscale.example.com:8080", contract)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"control_plane_vip": "10.0.0.20", "headscale_login_server": "https://headscale.example.com:8080",
		"controlplanes": [{"name": "talos-cp-01", "dhcp": "10.0.0.11"}, {"name": "talos-cp-02", "dhcp": "10.0.0.12"}, {"name": "talos-cp-03"}],
		"workers": [{"name": "talos-worker-01", "dhcp": "10.0.0.21"}, {"name": "talos-gpu-01", "dhcp": "fd00::31"}]}`, out)

	_, _, err = ops(t, "{}", "export", "ansible")
	assert.EqualError(t, err,
		"the stack has no output talos_bootstrap_contract: is it a stack of this program, and deployed?")
}

// TestAddresses prints the pools with their addresses, or writes them.
func TestAddresses(t *testing.T) {
	const (
		data  = "../nodesjson/testdata"
		notes = 3
	)

	stack := filepath.Join(t.TempDir(), "Pulumi.home.yaml")
	require.NoError(t, os.WriteFile(stack, []byte(file(t, data, "Pulumi.home.yaml")), 0o600))

	out, said, err := ops(t, "", "set-addresses", data+"/nodes.json", stack)
	require.NoError(t, err)
	assert.Equal(t, file(t, data, "pools.yaml"), out)
	assert.Equal(t, notes, strings.Count(said, "note: "))
	assert.Equal(t, file(t, data, "Pulumi.home.yaml"), file(t, stack), "the file is left alone")

	out, _, err = ops(t, "", "set-addresses", "--write", data+"/nodes.json", stack)
	require.NoError(t, err)
	assert.Empty(t, out)
	assert.Equal(t, file(t, data, "applied.yaml"), file(t, stack))

	info, err := os.Stat(stack)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}
