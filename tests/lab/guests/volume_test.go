package guests

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
)

// written counts how often it was copied.
type content struct{ copies int }

func (c *content) CloneContent() machine.Content { return &content{c.copies + 1} }

func TestVolumes(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	path := filepath.Join(dir, "vm-401-disk-0")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 1<<20))

	var all volumes

	open := func(path string) *volume {
		v, err := all.open(path)
		require.NoError(t, err)

		return v
	}

	v := open(path)
	assert.Nil(t, v.Content(), "a blank one")
	assert.Equal(t, int64(1<<20), v.Size())

	installed := &content{}
	v.Write(installed)
	assert.Same(t, installed, open(path).Content(), "after the next power-on")

	require.NoError(t, os.Truncate(path, 2<<20))
	assert.Same(t, installed, v.Content(), "a larger disk holds the same")
	assert.Equal(t, int64(2<<20), v.Size())

	// A clone is a system of its own from its first power-on.
	clone := filepath.Join(dir, "vm-402-disk-0")
	copyFile(t, path, clone)
	assert.Equal(t, &content{copies: 1}, open(clone).Content())
	assert.Same(t, open(clone).Content(), open(clone).Content(), "it is copied once")

	open(clone).Write(&content{copies: 9})
	assert.Same(t, installed, v.Content(), "what is written to a clone is not on the disk that it was made from")

	// A disk that is deleted and made again is blank.
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	assert.Nil(t, open(path).Content())

	// An image, which is recognised by its beginning.
	require.NoError(t, os.WriteFile(path, []byte("an image"), 0o600))
	assert.Equal(t, &machine.File{Head: []byte("an image")}, open(path).Content())

	_, err := all.open(dir)
	require.Error(t, err)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()

	in, err := os.Open(from)
	require.NoError(t, err)

	defer in.Close()

	out, err := os.Create(to)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}
