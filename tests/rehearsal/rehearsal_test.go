package rehearsal

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStackNames holds that no file name makes a stack whose directory is another one's.
func TestStackNames(t *testing.T) {
	t.Parallel()

	for _, name := range []string{
		"...yaml", "Pulumi...yaml", "Pulumi..yaml", ".yaml", "Pulumi.a..b.yaml",
		"Pulumi.-a.yaml", "Pulumi.a b.yaml",
	} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte("config: {}\n"), 0o600))

		_, err := ReadStack(path)
		assert.ErrorContains(t, err, "names no stack", name)
	}

	path := filepath.Join(t.TempDir(), "Pulumi.prod.eu-1.yaml")
	require.NoError(t, os.WriteFile(path, []byte("config: {}\n"), 0o600))

	s, err := ReadStack(path)
	require.NoError(t, err)
	assert.Equal(t, "prod.eu-1", s.Name)
}

// TestQuote holds that a shell reads back what was quoted for it.
func TestQuote(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "/plain/path", "two words", "it's", `"$HOME" \ ` + "`id`", "~", "line\nbreak"} {
		printed, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quote(text)).Output()
		require.NoError(t, err)
		assert.Equal(t, text, string(printed))
	}
}
