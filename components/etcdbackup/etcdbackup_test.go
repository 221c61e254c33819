package etcdbackup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// database is what etcd stores after so many revisions, with the hash that a snapshot ends with.
func database(t *testing.T, revision uint64) []byte {
	t.Helper()

	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("key"))
		require.NoError(t, err)

		for r := uint64(2); r <= revision; r++ {
			key := append(binary.BigEndian.AppendUint64(nil, r), '_')
			require.NoError(t, b.Put(append(key, make([]byte, 8)...), []byte("value")))
		}

		return nil
	}))
	require.NoError(t, db.Close())

	content, err := os.ReadFile(path)
	require.NoError(t, err)

	return content
}

func hashed(content []byte) []byte {
	sum := sha256.Sum256(content)

	return append(bytes.Clone(content), sum[:]...)
}

func write(t *testing.T, content []byte) *os.File {
	t.Helper()

	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })

	_, err = f.Write(content)
	require.NoError(t, err)

	return f
}

func TestRead(t *testing.T) {
	t.Parallel()

	content := database(t, 41)

	s, err := Read(write(t, hashed(content)))
	require.NoError(t, err)
	assert.EqualValues(t, 41, s.Revision)
	assert.Equal(t, 40, s.Keys)
	assert.EqualValues(t, len(content)+32, s.Size)
	assert.Len(t, s.SHA256, 64)
	assert.False(t, s.Raw)

	s, err = Read(write(t, content))
	require.NoError(t, err)
	assert.True(t, s.Raw, "a copy of a member's file")
	assert.EqualValues(t, 41, s.Revision)
}

func TestReadRefused(t *testing.T) {
	t.Parallel()

	content := database(t, 41)

	changed := hashed(content)
	changed[len(changed)/2] ^= 1

	for name, c := range map[string]struct {
		content []byte
		refused string
	}{
		"empty":         {nil, "it is no etcd database"},
		"a page of one": {[]byte("<html>not found</html>"), "22 bytes are no whole snapshot of etcd"},
		"cut off":       {hashed(content)[:len(content)-100], "are no whole snapshot of etcd"},
		"changed":       {changed, "its content is not what its hash says: it was cut off, or changed"},
		"zeros":         {make([]byte, 8192), "it is no etcd database"},
		"no database":   {hashed(make([]byte, 8192)), "it is no etcd database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := Read(write(t, c.content))
			require.ErrorContains(t, err, c.refused)
		})
	}
}

func TestStore(t *testing.T) {
	t.Parallel()

	s := Store{Dir: filepath.Join(t.TempDir(), "etcd-backups"), Cluster: "atlas", Keep: 2}

	none, err := s.List()
	require.NoError(t, err)
	assert.Empty(t, none)

	day := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	send := func(content []byte) func(io.Writer) error {
		return func(w io.Writer) error {
			_, err := w.Write(content)

			return err
		}
	}

	for i := range 3 {
		_, err := s.Take(day.Add(time.Duration(i)*time.Hour), send(hashed(database(t, uint64(10+i)))))
		require.NoError(t, err)
	}

	_, err = s.Take(day, send([]byte("half")))
	require.EqualError(t, err, "what etcd sent is no snapshot: 4 bytes are no whole snapshot of etcd")

	_, err = s.Take(day, func(io.Writer) error { return errors.New("lost") })
	require.EqualError(t, err, "lost")

	other := Store{Dir: s.Dir, Cluster: "other", Keep: 1}
	_, err = other.Take(day, send(hashed(database(t, 5))))
	require.NoError(t, err)

	all, err := s.List()
	require.NoError(t, err)
	require.Len(t, all, 2, "the oldest has gone, the other cluster's does not count")
	assert.Equal(t, "atlas.20261121-200000.db", filepath.Base(all[0].Path))
	assert.EqualValues(t, 12, all[0].Revision)
	assert.EqualValues(t, 11, all[1].Revision)
	require.NoError(t, Verify(all[0]))

	require.NoError(t, filepath.WalkDir(s.Dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)

		info, err := e.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, path)
		assert.NotContains(t, path, "unfinished")

		return nil
	}))

	require.NoError(t, os.WriteFile(all[0].Path, hashed(database(t, 99)), 0o600))
	require.EqualError(t, Verify(all[0]), "it is not what it was when it was taken")
}
