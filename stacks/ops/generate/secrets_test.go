package generate

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// full takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestWriteSecrets: secrets in plain text are only left where the operator is told of them.
func TestWriteSecrets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)

	r := &Result{Secrets: []Secret{{Path: "talos-proxmox:pools.worker.patches[0]", Text: "machine: {}\n"}}}

	require.EqualError(t, r.WriteSecrets(full{}), "no space left")

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)

	var told strings.Builder

	require.NoError(t, r.WriteSecrets(&told))

	left, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Contains(t, told.String(), "/"+left[0].Name()+"/1.yaml\n  rm -r ")
}
