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
	"strings"
	"testing"
	"time"

	"filippo.io/age"
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
		"empty":                     {nil, "it is not an etcd database"},
		"a page of one":             {[]byte("<html>not found</html>"), "22 bytes are not a complete snapshot of etcd"},
		"cut off":                   {hashed(content)[:len(content)-100], "are not a complete snapshot of etcd"},
		"cut off where a page ends": {content[:8192], "it is not an etcd database"},
		"changed":                   {changed, "its content does not match its hash: it was cut off, or changed"},
		"zeros":                     {make([]byte, 8192), "it is not an etcd database"},
		"no database":               {hashed(make([]byte, 8192)), "it is not an etcd database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := Read(write(t, c.content))
			require.ErrorContains(t, err, c.refused)
		})
	}
}

// TestSaveCutOff: a transfer that ends early, and where a page does, looks like the file of a member.
func TestSaveCutOff(t *testing.T) {
	t.Parallel()

	content := database(t, 41)
	store := Store{Dir: t.TempDir(), Cluster: "c", Keep: 1}

	for _, sent := range [][]byte{content, content[:8192]} {
		_, err := store.Save(time.Now(), func(w io.Writer) error {
			_, err := w.Write(sent)

			return err
		})
		require.ErrorContains(t, err, "that etcd sent ")
	}

	kept, err := store.List()
	require.NoError(t, err)
	assert.Empty(t, kept)
}

func TestStore(t *testing.T) {
	t.Parallel()

	s := Store{Dir: filepath.Join(t.TempDir(), "etcd-backups"), Cluster: "atlas", ClusterCA: "a", Keep: 2}

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
		_, err := s.Save(day.Add(time.Duration(i)*time.Hour), send(hashed(database(t, uint64(10+i)))))
		require.NoError(t, err)
	}

	_, err = s.Save(day, send([]byte("half")))
	require.EqualError(t, err, "the data that etcd sent is not a snapshot: 4 bytes are not a complete snapshot of etcd")

	_, err = s.Save(day, func(io.Writer) error { return errors.New("lost") })
	require.EqualError(t, err, "lost")

	other := Store{Dir: s.Dir, Cluster: "other", ClusterCA: "b", Keep: 1}
	_, err = other.Save(day, send(hashed(database(t, 5))))
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
	require.EqualError(t, Verify(all[0]), "it has changed since it was taken")
}

// TestEncrypted: what is kept can be verified without a key, be decrypted with one, and is pruned as others are.
func TestEncrypted(t *testing.T) {
	t.Parallel()

	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	phrase, err := age.NewScryptIdentity("a phrase")
	require.NoError(t, err)

	content := hashed(database(t, 41))
	day := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)

	for name, c := range map[string]struct {
		keys     []string
		phrase   string
		identity age.Identity
	}{
		"key":        {keys: []string{identity.Recipient().String()}, phrase: "not used", identity: identity},
		"passphrase": {phrase: "a phrase", identity: phrase},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := Store{Dir: t.TempDir(), Cluster: "atlas", ClusterCA: "a", Keep: 1}
			s.Recipients, err = Recipients(c.keys, c.phrase)
			require.NoError(t, err)

			for i := range 2 {
				_, err := s.Save(day.Add(time.Duration(i)*time.Hour), func(w io.Writer) error {
					_, err := w.Write(content)
					requireNoneInPlain(t, s.Dir)

					return err
				})
				require.NoError(t, err)
			}

			// What is no snapshot is not kept in either form.
			for _, sent := range [][]byte{content[:len(content)-100], hashed(make([]byte, 8192))} {
				_, err := s.Save(day.Add(-time.Hour), func(w io.Writer) error {
					_, err := w.Write(sent)

					return err
				})
				require.ErrorContains(t, err, "the data that etcd sent is not a snapshot: ")
			}

			files, err := filepath.Glob(filepath.Join(s.Dir, "*"))
			require.NoError(t, err)
			hidden, err := filepath.Glob(filepath.Join(s.Dir, ".*"))
			require.NoError(t, err)

			path := filepath.Join(s.Dir, "atlas.20261121-190000.db.age")
			require.Equal(t, []string{path, path + ".json"}, append(files, hidden...), "the older went, and nothing is left")

			kept, err := s.List()
			require.NoError(t, err)
			require.Len(t, kept, 1)
			assert.EqualValues(t, 41, kept[0].Revision)
			require.NoError(t, Verify(kept[0]))

			f, err := os.Open(path)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, f.Close()) })

			_, err = Read(f)
			require.ErrorIs(t, err, errEncrypted)

			var plain bytes.Buffer
			require.NoError(t, Decrypt(f, &plain, c.identity))
			assert.Equal(t, content, plain.Bytes())

			text, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.NotContains(t, string(text), "value")

			other, err := age.GenerateX25519Identity()
			require.NoError(t, err)
			require.Error(t, Decrypt(bytes.NewReader(text), io.Discard, other))

			text[len(text)-1] ^= 1
			require.NoError(t, os.WriteFile(path, text, 0o600))
			require.EqualError(t, Verify(kept[0]), "it has changed since it was taken")

			require.NoError(t, os.Remove(path+".json"))

			kept, err = s.List()
			require.NoError(t, err)
			require.ErrorContains(t, Verify(kept[0]), "decrypt it to check whether it is complete")
		})
	}
}

// requireNoneInPlain holds that no file of a directory has what a snapshot holds, or may become one.
func requireNoneInPlain(t *testing.T, dir string) {
	t.Helper()

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)

	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		assert.NotContains(t, string(text), "value", e.Name())
		assert.Regexp(t, `\.db\.age(\.json)?$`, e.Name())
	}
}

// TestNotes: a note that was cut off blocks nothing, and one that cannot be written leaves no snapshot.
func TestNotes(t *testing.T) {
	t.Parallel()

	var warned []string

	s := Store{
		Dir: t.TempDir(), Cluster: "atlas", ClusterCA: "a", Keep: 2,
		Warn: func(message string) { warned = append(warned, message) },
	}
	now := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	content := hashed(database(t, 41))
	send := func(w io.Writer) error {
		_, err := w.Write(content)

		return err
	}

	first, err := s.Save(now, send)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(NoteOf(first.Path), []byte(`{"sha256": "00", "revi`), 0o600))

	_, err = s.Save(now.Add(time.Hour), send)
	require.NoError(t, err)
	require.Len(t, warned, 1)
	assert.Equal(t,
		NoteOf(first.Path)+
			" cannot be read (unexpected end of JSON input) and is ignored. The snapshot itself may be valid: "+
			"check it with 'go run ./stacks/ops etcd check'. Then remove the note", warned[0])

	all, err := s.List()
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.EqualValues(t, 41, all[0].Revision)
	require.ErrorContains(t, all[1].NoteErr, "unexpected end of JSON input")
	assert.Equal(t, Snapshot{Path: first.Path, Taken: now, NoteErr: all[1].NoteErr}, all[1],
		"nothing of half a note counts")
	require.NoError(t, Verify(all[1]))

	_, err = s.Save(now.Add(2*time.Hour), send)
	require.NoError(t, err)
	_, err = s.Save(now.Add(150*time.Minute), send)
	require.NoError(t, err)
	assert.FileExists(t, first.Path, "without its note, it may be of another cluster")
	assert.NoFileExists(t, all[0].Path, "the oldest goes, with its note")
	assert.NoFileExists(t, NoteOf(all[0].Path))

	// What cannot be written is not the fault of whoever sends it.
	_, err = s.Save(now, func(w io.Writer) error {
		require.NoError(t, w.(*writer).to.(*os.File).Close())
		require.Error(t, send(w))

		return errors.New("the control plane sent nothing")
	})
	require.ErrorIs(t, err, os.ErrClosed)
	assert.NotContains(t, err.Error(), "control plane")

	late := now.Add(3 * time.Hour)
	taken := filepath.Join(s.Dir, "atlas.20261121-210000.db")
	require.NoError(t, os.Mkdir(NoteOf(taken), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(NoteOf(taken), "file"), nil, 0o600))

	_, err = s.Save(late, send)
	require.Error(t, err)
	assert.NoFileExists(t, taken, "a snapshot that is never pruned")
}

// TestOtherClusters: clusters of one name that share a directory keep each other's snapshots, and those that do not say
// whose they are.
func TestOtherClusters(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	now := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	content := hashed(database(t, 41))
	take := func(s Store, after time.Duration) Snapshot {
		s.Dir, s.Cluster = dir, "edge"
		taken, err := s.Save(now.Add(after), func(w io.Writer) error {
			_, err := w.Write(content)

			return err
		})
		require.NoError(t, err)

		return taken
	}

	unknown := take(Store{}, 0)
	a := Store{ClusterCA: "a", Keep: 1}
	first := take(a, time.Hour)

	// One second holds a snapshot of each, and one of the same cluster is as good.
	b := take(Store{ClusterCA: "b", Keep: 1}, time.Hour)
	assert.Equal(t, "edge.20261121-190001.db", filepath.Base(b.Path))
	assert.Equal(t, first, take(a, time.Hour))
	assert.NotEqual(t, unknown.Path, take(Store{ClusterCA: "b"}, 0).Path)

	newest, owned, err := Store{Dir: dir, Cluster: "edge", ClusterCA: "a"}.Newest()
	require.NoError(t, err)
	assert.True(t, owned)
	assert.Equal(t, first, newest)

	newest, owned, err = Store{Dir: dir, Cluster: "edge", ClusterCA: "c"}.Newest()
	require.NoError(t, err)
	assert.False(t, owned)
	assert.Equal(t, unknown, newest)

	a.Protect = []string{filepath.Join(dir, "link")}
	require.NoError(t, os.Symlink(first.Path, a.Protect[0]))

	second := take(a, 2*time.Hour)
	assert.FileExists(t, first.Path, "it is protected")

	a.Protect = []string{filepath.Join(dir, "removed")}
	third := take(a, 3*time.Hour)

	for _, kept := range []Snapshot{unknown, b, third} {
		assert.FileExists(t, kept.Path)
		assert.FileExists(t, NoteOf(kept.Path))
	}

	for _, removed := range []Snapshot{first, second} {
		assert.NoFileExists(t, removed.Path)
		assert.NoFileExists(t, NoteOf(removed.Path))
	}

	// Whether a file is the protected one cannot be known here.
	a.Protect = []string{filepath.Join(third.Path, "below a file")}
	a.Dir, a.Cluster = dir, "edge"

	var warned []string

	a.Warn = func(message string) { warned = append(warned, message) }
	kept, err := a.Save(now.Add(4*time.Hour), func(w io.Writer) error {
		_, err := w.Write(content)

		return err
	})
	require.NoError(t, err)
	assert.FileExists(t, kept.Path, "the new one is sound")
	assert.FileExists(t, third.Path)
	require.NotEmpty(t, warned)
	assert.Contains(t, warned[len(warned)-1], "a snapshot beyond the newest ")
}

// TestCheckCluster: a snapshot is of another cluster where its note says so, that of its encrypted form, too.
func TestCheckCluster(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "edge.20261127-120000.db")

	require.NoError(t, CheckCluster(file, "a"), "no note")
	require.NoError(t, os.WriteFile(NoteOf(file), []byte(`{"sha256": "x"}`), 0o600))
	require.NoError(t, CheckCluster(file, "a"), "no fingerprint")

	require.NoError(t, os.WriteFile(NoteOf(file+".age"), []byte(`{"clusterCa": "a"}`), 0o600))
	require.NoError(t, CheckCluster(file, "a"))
	require.EqualError(t, CheckCluster(file, "b"), "it is a snapshot of another cluster: "+NoteOf(file+".age")+
		" has the fingerprint a of its Talos API CA, and this cluster's is b; name a snapshot of this cluster, or remove "+
		"the note if its CA was rotated since")

	require.NoError(t, os.WriteFile(NoteOf(file), []byte(`{`), 0o600))
	require.NoError(t, CheckCluster(file, "a"), "a note that cannot be read")
}

// TestOrigins: an update does not remove what an operator has taken, nor the other way round. Notes that do not say who
// took a snapshot are an update's.
func TestOrigins(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	now := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	content := hashed(database(t, 41))
	take := func(by Origin, after time.Duration) Snapshot {
		taken, err := Store{Dir: dir, Cluster: "edge", ClusterCA: "a", By: by, Keep: 1}.Save(now.Add(after),
			func(w io.Writer) error {
				_, err := w.Write(content)

				return err
			})
		require.NoError(t, err)

		return taken
	}

	old := take("", 0)
	assert.Equal(t, ByUpdate, old.By)

	note, err := os.ReadFile(NoteOf(old.Path))
	require.NoError(t, err)

	without := strings.Replace(string(note), `"by": "update",`, "", 1)
	require.NotEqual(t, string(note), without)
	require.NoError(t, os.WriteFile(NoteOf(old.Path), []byte(without), 0o600))

	hand := take(ByHand, 0)
	assert.NotEqual(t, old.Path, hand.Path, "one of the same second with another origin")
	assert.FileExists(t, old.Path)

	update := take(ByUpdate, time.Hour)
	assert.NoFileExists(t, old.Path, "its note does not say who took it")
	assert.FileExists(t, hand.Path)

	later := take(ByHand, 2*time.Hour)
	assert.NoFileExists(t, hand.Path)
	assert.FileExists(t, update.Path)
	assert.FileExists(t, later.Path)
}
