package talosapi

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadSnapshot(t *testing.T) {
	data := make([]byte, 8192)
	binary.LittleEndian.PutUint32(data[16:], 0xED0CDAED)

	sum := sha256.Sum256(data)
	whole := append(data, sum[:]...)

	other := append([]byte{}, whole...)
	other[4000] = 1

	foreign := make([]byte, 512)
	sum512 := sha256.Sum256(foreign)

	for name, c := range map[string]struct {
		content []byte
		refused string
	}{
		"whole":      {content: whole},
		"cut off":    {whole[:5000], "5000 bytes are no database with a hash: it is cut off, or no snapshot"},
		"empty":      {nil, "0 bytes are no database with a hash: it is cut off, or no snapshot"},
		"no bbolt":   {append(foreign, sum512[:]...), "it does not begin like a database of etcd"},
		"other data": {other, "its data do not have the hash that it ends with"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			require.NoError(t, os.WriteFile(path, c.content, 0o600))

			s, err := ReadSnapshot(path)
			if c.refused != "" {
				require.EqualError(t, err, c.refused)

				return
			}

			require.NoError(t, err)
			assert.Equal(t, Snapshot{Path: path, Hash: hex.EncodeToString(sum[:]), Bytes: 8224}, s)
		})
	}
}
