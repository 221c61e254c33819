package talosapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// Snapshot is a copy of what etcd holds, in a file that etcd's own tools read. It holds every secret of the cluster.
type Snapshot struct {
	Path string
	// Hash is the SHA-256 of the data, which etcd appends to them.
	Hash  string
	Bytes int64
}

// TakeSnapshot has a control plane write what etcd holds to a new file in a directory, for nobody else to read. The file is
// there when it is whole.
func TakeSnapshot(ctx context.Context, t Target, c Credentials, dir, cluster string, bound time.Duration) (_ Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	api, err := dial(ctx, t, c)
	if err != nil {
		return Snapshot{}, err
	}
	defer api.Close() //nolint:errcheck // nothing is left to be written

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Snapshot{}, err
	}

	file, err := os.CreateTemp(dir, ".snapshot-*") // mode 0600
	if err != nil {
		return Snapshot{}, err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it has been renamed, mostly

	stream, err := api.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
	if err == nil {
		_, err = io.Copy(file, stream)
		err = errors.Join(err, stream.Close())
	}

	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return Snapshot{}, fmt.Errorf("no snapshot of etcd from %s: %s", t.Name, brief(err)) //nolint:errorlint // its words are enough
	}

	s, err := ReadSnapshot(file.Name())
	if err != nil {
		return Snapshot{}, fmt.Errorf("the snapshot of etcd from %s is broken: %w", t.Name, err)
	}

	s.Path = filepath.Join(dir, cluster+"."+time.Now().UTC().Format("20060102-150405")+".db")

	return s, os.Rename(file.Name(), s.Path)
}

// What a snapshot consists of: pages of a bbolt database, and the SHA-256 of them all (etcd: client/v3/snapshot). A database
// begins with a page of metadata, whose header has 16 bytes (bbolt: internal/common).
const (
	pageMultiple = 512
	metaAt       = 16
	boltMagic    = 0xED0CDAED
)

// ReadSnapshot holds that a file is a whole snapshot: a database, with the hash of its data at the end.
func ReadSnapshot(path string) (Snapshot, error) {
	file, err := os.Open(path)
	if err != nil {
		return Snapshot{}, err
	}
	defer file.Close() //nolint:errcheck // it was read

	info, err := file.Stat()
	if err != nil {
		return Snapshot{}, err
	}

	size := info.Size() - sha256.Size
	if size <= 0 || size%pageMultiple != 0 {
		return Snapshot{}, fmt.Errorf("%d bytes are no database with a hash: it is cut off, or no snapshot", info.Size())
	}

	var head [metaAt + 4]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return Snapshot{}, err
	}

	if binary.LittleEndian.Uint32(head[metaAt:]) != boltMagic {
		return Snapshot{}, errors.New("it does not begin like a database of etcd")
	}

	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(file, 0, size)); err != nil {
		return Snapshot{}, err
	}

	said := make([]byte, sha256.Size)
	if _, err := file.ReadAt(said, size); err != nil {
		return Snapshot{}, err
	}

	if !bytes.Equal(said, hash.Sum(nil)) {
		return Snapshot{}, errors.New("its data do not have the hash that it ends with")
	}

	return Snapshot{Path: path, Hash: hex.EncodeToString(said), Bytes: info.Size()}, nil
}
