package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClaim: a directory belongs to the first that writes files there, until its marker is deleted.
func TestClaim(t *testing.T) {
	project := t.TempDir()
	marker := filepath.Join(project, "talos", Marker)
	dev := Owner{Organization: "organization", Project: "home", Stack: "dev", Cluster: "edge"}
	prod := dev
	prod.Stack = "prod"

	const refused = "must be a directory of cluster edge of stack organization/home/prod, and "

	require.NoError(t, Check(project, "./talos", dev))
	assert.NoDirExists(t, filepath.Join(project, "talos"), "a check writes nothing")

	// A directory of an earlier version has files, and no marker.
	require.NoError(t, Write(project, "./talos", "kubeconfig", []byte("one")))
	require.NoError(t, Check(project, "./talos", prod))
	require.NoError(t, Claim(project, "./talos", dev))

	info, err := os.Stat(marker)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	for _, f := range []func(string, string, Owner) error{Check, Claim} {
		require.NoError(t, f(project, "talos/", dev))
		require.EqualError(t, f(project, "./talos", prod),
			refused+"holds files of cluster edge of stack organization/home/dev")
	}

	for _, text := range []string{"", "{", "[]"} {
		require.NoError(t, os.WriteFile(marker, []byte(text), 0o600))

		for _, f := range []func(string, string, Owner) error{Check, Claim} {
			require.ErrorContains(t, f(project, "./talos", prod), refused+".owner.json in it cannot be read: ")
		}
	}

	require.NoError(t, os.Remove(marker))
	require.NoError(t, Claim(project, "talos", prod))
	require.Error(t, Check(project, "talos", dev))

	require.Error(t, Check(project, "../talos", dev))
	require.Error(t, Claim(project, "../talos", dev))
}
