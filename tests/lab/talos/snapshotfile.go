package talos

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"talos-proxmox/tests/lab/kube"
)

// A snapshot of etcd is its database, a bbolt file, with the SHA-256 of that after it. What is in the database is laid
// out as etcd does it (etcd: server/storage/schema, mvcc), as far as its own tools look.

// The buckets.
var (
	keyBucket  = []byte("key")
	metaBucket = []byte("meta")
)

// errNoHash and its like are what etcd says of a snapshot (etcd: etcdutl/snapshot/v3_snapshot.go).
var errNoHash = errors.New("snapshot missing hash but --skip-hash-check=false")

// writeSnapshot returns a snapshot of objects at a revision.
func writeSnapshot(entries []kube.Entry, revision, term uint64) ([]byte, error) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()

	if err := db.Update(func(tx *bolt.Tx) error { return fill(tx, entries, revision, term) }); err != nil {
		return nil, err
	}

	var out bytes.Buffer

	if err := db.View(func(tx *bolt.Tx) error {
		_, err := tx.WriteTo(&out)

		return err
	}); err != nil {
		return nil, err
	}

	sum := sha256.Sum256(out.Bytes())

	return append(out.Bytes(), sum[:]...), nil
}

func fill(tx *bolt.Tx, entries []kube.Entry, revision, term uint64) error {
	for _, name := range []string{
		"alarm", "auth", "authRoles", "authUsers", "cluster", "lease", "members",
		"members_removed",
	} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}

	meta, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}

	for name, value := range map[string][]byte{
		"consistent_index": binary.BigEndian.AppendUint64(nil, revision), "term": binary.BigEndian.AppendUint64(nil, term),
		"storageVersion": []byte("3.6.0"),
	} {
		if err := meta.Put([]byte(name), value); err != nil {
			return err
		}
	}

	keys, err := tx.CreateBucket(keyBucket)
	if err != nil {
		return err
	}

	last := uint64(0)

	for _, e := range entries {
		if err := keys.Put(revisionKey(e.Revision), encodeKeyValue(e)); err != nil {
			return err
		}

		last = max(last, e.Revision)
	}

	if last == revision {
		return nil
	}

	// the newest change was a deletion
	return keys.Put(append(revisionKey(revision), 't'), encodeKeyValue(kube.Entry{Key: "/registry/deleted"}))
}

// revisionKey is the name of a change: its revision, and its place among the changes of one transaction.
func revisionKey(revision uint64) []byte {
	return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, revision), '_'), 0)
}

// The fields of etcd's KeyValue (etcd: api/mvccpb/kv.proto).
const (
	fieldKey, fieldCreated, fieldModified, fieldVersion, fieldValue = 1, 2, 3, 4, 5
)

func encodeKeyValue(e kube.Entry) []byte {
	b := protowire.AppendBytes(protowire.AppendTag(nil, fieldKey, protowire.BytesType), []byte(e.Key))

	if e.Revision == 0 {
		return b // of a deletion only the key is kept
	}

	for _, field := range []protowire.Number{fieldCreated, fieldModified} {
		b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), e.Revision)
	}

	b = protowire.AppendVarint(protowire.AppendTag(b, fieldVersion, protowire.VarintType), 1)

	return protowire.AppendBytes(protowire.AppendTag(b, fieldValue, protowire.BytesType), e.Value)
}

func decodeKeyValue(b []byte) (kube.Entry, error) {
	var e kube.Entry

	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return e, protowire.ParseError(n)
		}

		b = b[n:]

		switch {
		case field == fieldModified && kind == protowire.VarintType:
			e.Revision, n = protowire.ConsumeVarint(b)
		case field == fieldKey && kind == protowire.BytesType:
			var key []byte
			key, n = protowire.ConsumeBytes(b)
			e.Key = string(key)
		case field == fieldValue && kind == protowire.BytesType:
			e.Value, n = protowire.ConsumeBytes(b)
			e.Value = bytes.Clone(e.Value)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}

		if n < 0 {
			return e, protowire.ParseError(n)
		}

		b = b[n:]
	}

	return e, nil
}

// readSnapshot returns the objects of a snapshot, and the revision it was taken at. A file that is the database alone
// has no hash, and is taken only when none is asked for.
func readSnapshot(data []byte, skipHash bool) ([]kube.Entry, uint64, error) {
	const page = 512 // the size of a database is a multiple of it

	if len(data)%page == sha256.Size {
		database, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
		if got := sha256.Sum256(database); !skipHash && !bytes.Equal(got[:], sum) {
			return nil, 0, fmt.Errorf("expected sha256 %v, got %v", sum, got[:])
		}

		data = database
	} else if !skipHash {
		return nil, 0, errNoHash
	}

	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, 0, err
	}

	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, 0, err
	}
	defer db.Close()

	var (
		entries  []kube.Entry
		revision uint64
	)

	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return fmt.Errorf("snapshot file integrity check failed: %w", err)
		}

		keys := tx.Bucket(keyBucket)
		if keys == nil {
			return fmt.Errorf("there is no bucket %q", keyBucket)
		}

		return keys.ForEach(func(k, v []byte) error {
			if len(k) < 17 {
				return fmt.Errorf("%x is no revision", k)
			}

			revision = binary.BigEndian.Uint64(k)

			if len(k) > 17 { // a deletion
				return nil
			}

			e, err := decodeKeyValue(v)
			entries = append(entries, e)

			return err
		})
	})

	return entries, revision, err
}
