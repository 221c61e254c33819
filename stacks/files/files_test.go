package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	project := t.TempDir()
	dir := filepath.Join(project, "out", "talos")

	require.NoError(t, Write(project, "./out/talos", "kubeconfig", []byte("one")))
	require.NoError(t, Write(project, "./out/talos/", "kubeconfig", []byte("two")))

	for name, want := range map[string]string{"kubeconfig": "two", ".gitignore": "*\n"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got))

		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}

	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "nothing is left next to them")
}

// TestWriteIsWhole: whoever reads the file while it is written again reads the old one.
func TestWriteIsWhole(t *testing.T) {
	project := t.TempDir()
	require.NoError(t, Write(project, "talos", "kubeconfig", []byte("one")))

	reader, err := os.Open(filepath.Join(project, "talos", "kubeconfig"))
	require.NoError(t, err)

	defer reader.Close() // it was read only

	require.NoError(t, Write(project, "talos", "kubeconfig", []byte("another")))

	text := make([]byte, 16)
	n, err := reader.Read(text)
	require.NoError(t, err)
	assert.Equal(t, "one", string(text[:n]))
}

func TestWriteReplacesLinks(t *testing.T) {
	project := t.TempDir()
	outside := filepath.Join(t.TempDir(), "precious")
	require.NoError(t, os.WriteFile(outside, []byte("precious"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(project, "talos"), 0o700))
	require.NoError(t, os.Symlink(outside, filepath.Join(project, "talos", "kubeconfig")))

	require.NoError(t, Write(project, "talos", "kubeconfig", []byte("two")))

	got, err := os.ReadFile(outside)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(got))
}

// TestWriteStaysInside: no way leads out of the project, by name or by a link; within it a link is as good as any.
func TestWriteStaysInside(t *testing.T) {
	project, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(project, "out")))
	require.NoError(t, os.Mkdir(filepath.Join(project, "within"), 0o700))
	require.NoError(t, os.Symlink("within", filepath.Join(project, "talos")))

	for _, dir := range []string{"out", "out/talos", "../talos", outside} {
		err := Write(project, dir, "kubeconfig", []byte("two"))
		require.ErrorContains(t, err, dir+", which must be a directory inside the project: ")
	}

	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Empty(t, entries)

	require.NoError(t, Write(project, "talos", "kubeconfig", []byte("two")))
	assert.FileExists(t, filepath.Join(project, "within", "kubeconfig"))
}

func TestWriteFails(t *testing.T) {
	project := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(project, "file"), nil, 0o600))
	assert.Error(t, Write(project, "file", "kubeconfig", nil))
	assert.Error(t, Write(filepath.Join(project, "none"), "talos", "kubeconfig", nil))
	require.NoError(t, os.MkdirAll(filepath.Join(project, "talos", "kubeconfig", "full"), 0o700))
	assert.Error(t, Write(project, "talos", "kubeconfig", nil))

	entries, err := os.ReadDir(filepath.Join(project, "talos"))
	require.NoError(t, err)
	assert.Len(t, entries, 2, "the directory in its place, and .gitignore")
}
