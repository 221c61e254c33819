package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// claim takes a directory for no file in particular.
func claim(project, dir string, owner Owner) error { return Claim(project, dir, owner, nil, nil) }

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
	require.NoError(t, claim(project, "./talos", dev))

	info, err := os.Stat(marker)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	for _, f := range []func(string, string, Owner) error{Check, claim} {
		require.NoError(t, f(project, "talos/", dev))
		require.EqualError(t, f(project, "./talos", prod),
			refused+"holds files of cluster edge of stack organization/home/dev")
	}

	for _, text := range []string{"", "{", "[]"} {
		require.NoError(t, os.WriteFile(marker, []byte(text), 0o600))

		for _, f := range []func(string, string, Owner) error{Check, claim} {
			require.ErrorContains(t, f(project, "./talos", prod), refused+".owner.json in it cannot be read: ")
		}
	}

	require.NoError(t, os.Remove(marker))
	require.NoError(t, claim(project, "talos", prod))
	require.Error(t, Check(project, "talos", dev))

	require.Error(t, Check(project, "../talos", dev))
	require.Error(t, claim(project, "../talos", dev))
}

// TestClaimKeepsFiles: what a directory without a marker has in the place of the wanted files is kept.
func TestClaimKeepsFiles(t *testing.T) {
	project := t.TempDir()
	dir := filepath.Join(project, "talos")
	owner := Owner{Organization: "organization", Project: "home", Stack: "dev", Cluster: "edge"}
	wanted := map[string]string{"kubeconfig": "new", "talosconfig": "new", "worker.yaml": "new", "secrets.yaml": "new"}

	require.NoError(t, os.Mkdir(dir, 0o700))

	for name, text := range map[string]string{"kubeconfig": "new", "talosconfig": "other", "notes": "other"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640)) //nolint:gosec // the mode stays
	}

	require.NoError(t, os.Symlink("notes", filepath.Join(dir, "worker.yaml")))

	var warned []string

	warn := func(message string) { warned = append(warned, message) }

	require.NoError(t, Claim(project, "./talos", owner, wanted, warn))
	require.NoError(t, Check(project, "./talos", owner))

	require.Len(t, warned, 2)
	assert.Regexp(t, `^talos/talosconfig was there before the first files of this cluster, with other content: it is now `+
		`talos/talosconfig\.before-\d{8}-\d{6}$`, warned[0])

	kept, err := filepath.Glob(filepath.Join(dir, "talosconfig*"))
	require.NoError(t, err)
	require.Len(t, kept, 1)

	text, err := os.ReadFile(kept[0])
	require.NoError(t, err)
	assert.Equal(t, "other", string(text))

	info, err := os.Stat(kept[0])
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())

	link, err := filepath.Glob(filepath.Join(dir, "worker.yaml.before-*"))
	require.NoError(t, err)
	require.Len(t, link, 1)
	assert.FileExists(t, filepath.Join(dir, "kubeconfig"), "the same content")

	// With a marker, the files are the owner's.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "talosconfig"), []byte("old"), 0o600))
	require.NoError(t, Claim(project, "./talos", owner, wanted, warn))
	assert.Len(t, warned, 2)
}

// TestFree: a file that was moved aside is never replaced.
func TestFree(t *testing.T) {
	place, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)

	defer place.Close() // nothing is left to be written

	for _, want := range []string{"a", "a-2", "a-3"} {
		name, err := free(place, "a")
		require.NoError(t, err)
		assert.Equal(t, want, name)
		require.NoError(t, place.WriteFile(name, nil, 0o600))
	}
}
