// Package etcdbackup keeps snapshots of etcd: files that hold everything a Kubernetes cluster knows, its secrets
// included.
package etcdbackup

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Snapshot is what is known of a file.
type Snapshot struct {
	// Path of the file.
	Path string `json:"-"`
	// Taken is when, in UTC, to the second; zero for a file of another name than this package gives.
	Taken time.Time `json:"-"`
	// SHA256 of the file, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// EncryptedSHA256 is that of the file where it is encrypted, and SHA256 of what it holds; empty: it is not.
	EncryptedSHA256 string `json:"encryptedSha256,omitempty"`
	// ClusterCA is the SHA-256 of the certificate of the Talos API CA of the snapshot's cluster, in hexadecimal digits;
	// empty: which cluster it is of is unknown.
	ClusterCA string `json:"clusterCa,omitempty"`
	// By is what took the snapshot; empty: an update, or a version of the program that did not note it.
	By Origin `json:"by,omitempty"`
	// Revision of etcd up to which the file goes.
	Revision int64 `json:"revision"`
	// Keys counts the revisions of keys in it.
	Keys int `json:"keys"`
	// Size in bytes.
	Size int64 `json:"size"`
	// Raw says that the file was copied from a member's disk: it has no hash of its own to be checked.
	Raw bool `json:"raw,omitempty"`
	// NoteErr is why what was noted of it cannot be read; nil: it was, or there is no note.
	NoteErr error `json:"-"`
}

// Origin is what took a snapshot.
type Origin string

// Origins. Each has its own retention, so that an update does not remove what an operator has taken.
const (
	ByUpdate Origin = "update"
	ByHand   Origin = "hand"
)

// origin is By, of notes without it, too.
func (s Snapshot) origin() Origin { return cmp.Or(s.By, ByUpdate) }

// page is what the size of an etcd database is a multiple of. A snapshot has a hash after that.
const page = 512

// Read looks into a file that etcd, or Talos, has written. The error says why nothing can be recovered from it: it is
// cut off, was changed, or is something else. It reads through an open file, so that the caller decides which files may
// be opened.
func Read(f *os.File) (Snapshot, error) {
	s, err := readHash(f)
	if err != nil {
		return s, err
	}

	return s, s.count(f.Name(), nil)
}

// readHash is Read without a look at the keys.
func readHash(f *os.File) (Snapshot, error) {
	s := Snapshot{Path: f.Name()}

	info, err := f.Stat()
	if err != nil {
		return s, err
	}

	s.Size = info.Size()

	if isEncrypted(f) {
		return s, errEncrypted
	}

	switch s.Size % page {
	case 0:
		s.Raw = true
	case sha256.Size:
	default:
		return s, fmt.Errorf("%d bytes are not a complete snapshot of etcd", s.Size)
	}

	return s, s.hash(f)
}

// hash compares the content with the hash at the end.
func (s *Snapshot) hash(f *os.File) error {
	content := s.Size
	if !s.Raw {
		content -= sha256.Size
	}

	inner, whole := sha256.New(), sha256.New()

	if _, err := io.Copy(io.MultiWriter(inner, whole), io.NewSectionReader(f, 0, content)); err != nil {
		return err
	}

	if !s.Raw {
		var recorded [sha256.Size]byte
		if _, err := f.ReadAt(recorded[:], content); err != nil {
			return err
		}

		if [sha256.Size]byte(inner.Sum(nil)) != recorded {
			return errors.New("its content does not match its hash: it was cut off, or changed")
		}

		whole.Write(recorded[:])
	}

	s.SHA256 = hex.EncodeToString(whole.Sum(nil))

	return nil
}

// revisions is the bucket in which etcd keeps each revision of each key; its keys begin with the revision, eight bytes.
var revisions = []byte("key")

// count looks at the keys of a file. Where it is open already, the library takes that, and closes it.
func (s *Snapshot) count(path string, opened *os.File) (err error) {
	// bbolt asserts what it reads, and maps the file: what lies behind its end is a fault, which would end the program.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it is not an etcd database: %v", r)
		}
	}()

	options := &bolt.Options{ReadOnly: true, Timeout: time.Second}
	if opened != nil {
		options.OpenFile = func(string, int, os.FileMode) (*os.File, error) { return opened, nil }
	}

	db, err := bolt.Open(path, 0, options)
	if err != nil {
		return fmt.Errorf("it is not an etcd database: %w", err)
	}
	defer db.Close()

	return db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(revisions)
		if bucket == nil {
			return errors.New("it is not an etcd database: it contains no Kubernetes keys")
		}

		s.Keys = bucket.Stats().KeyN

		if last, _ := bucket.Cursor().Last(); len(last) >= 8 {
			s.Revision = int64(binary.BigEndian.Uint64(last))
		}

		return nil
	})
}

// errEncrypted says why nothing can be recovered from a file as it is.
var errEncrypted = errors.New("it is encrypted: decrypt it with 'go run ./stacks/ops etcd decrypt <file>'")

// magic is what encrypted files begin with.
const magic = "age-encryption.org/"

// isEncrypted looks at the beginning of a file.
func isEncrypted(f *os.File) bool {
	begin := make([]byte, len(magic))
	_, err := f.ReadAt(begin, 0)

	return err == nil && string(begin) == magic
}
