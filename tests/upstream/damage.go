package upstream

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// DamageLog flips a bit in the write-ahead log of a member that does not run, as a disk that fails does.
func (c MemberConfig) DamageLog() error {
	logs, err := filepath.Glob(filepath.Join(c.Data(), "member", "wal", "*.wal"))
	if err != nil {
		return err
	}

	if len(logs) == 0 {
		return fmt.Errorf("%s has no log", c.Name)
	}

	f, err := os.OpenFile(slices.Max(logs), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()

	// It is in the ids of the member and its cluster, with which each file begins. etcd repairs an end that was not
	// written, and nothing else (etcd: server/storage/wal).
	const ids = 40

	b := make([]byte, 1)
	if _, err := f.ReadAt(b, ids); err != nil {
		return err
	}

	b[0] ^= 1
	_, err = f.WriteAt(b, ids)

	return err
}

// DamageStore changes the objects in the database of a member that does not run, each in its version, which Kubernetes
// does not look at.
func (c MemberConfig) DamageStore() error {
	db, err := bolt.Open(filepath.Join(c.Data(), "member", "snap", "db"), 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()

	return db.Update(func(tx *bolt.Tx) error {
		objects := tx.Bucket([]byte("key"))
		changed := map[string][]byte{}

		if err := objects.ForEach(func(k, v []byte) error {
			// The last of several values of a field counts (etcd: api/mvccpb/kv.proto).
			changed[string(k)] = append(bytes.Clone(v), 4<<3, 99)

			return nil
		}); err != nil {
			return err
		}

		if len(changed) == 0 {
			return fmt.Errorf("the database of %s has no objects", c.Name)
		}

		for k, v := range changed {
			if err := objects.Put([]byte(k), v); err != nil {
				return err
			}
		}

		return nil
	})
}
