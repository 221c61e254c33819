package etcdbackup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"filippo.io/age"

	"talos-proxmox/components/atomicfile"
)

// Store is a directory with the snapshots of one cluster. Others may be in it, also of clusters with the same name.
type Store struct {
	// Dir is made when it is first written to, for its owner only.
	Dir string
	// Cluster is the cluster's name. Without one, List finds the snapshots of all.
	Cluster string
	// ClusterCA tells the cluster from others with its name, as in Snapshot. Snapshots of others, and those that do not
	// say whose they are, are never removed.
	ClusterCA string
	// By is noted of the snapshots that are taken; empty: ByUpdate.
	By Origin
	// Keep is how many snapshots of the cluster with the same origin stay when another is taken; 0: all of them.
	Keep int
	// Protect are files that are never removed.
	Protect []string
	// Recipients are those who can decrypt snapshots; nil: they are not encrypted.
	Recipients []age.Recipient
	// Warn is told of notes that cannot be read, and of snapshots that cannot be removed; nil: it is not told.
	Warn func(message string)
}

const timestamp = "20060102-150405"

// nameOf takes a file's name apart: the cluster, and when.
var nameOf = regexp.MustCompile(`^(.+)\.(\d{8}-\d{6})\.db(\.age)?$`)

// Save keeps what fetch writes in a new file: whole and sound or not at all, readable for its owner only. What is to be
// encrypted is in no file with a name before it is. A note next to it, written in the same way, says what is known of
// it. The oldest snapshots beyond Keep go.
func (s Store) Save(now time.Time, fetch func(io.Writer) error) (Snapshot, error) {
	var taken Snapshot

	receive := func(f *os.File) (err error) {
		w := &writer{to: f}
		if err := fetch(w); w.err != nil {
			return w.err // whatever fetch makes of it, its source is not to blame
		} else if err != nil {
			return err
		}

		if taken, err = readHash(f); err != nil {
			return notSnapshot(err)
		}

		// What etcd sends ends with a hash.
		if taken.Raw {
			return fmt.Errorf("the snapshot that etcd sent was cut off after %d bytes", taken.Size)
		}

		taken.Taken, taken.ClusterCA = now.UTC().Truncate(time.Second), s.ClusterCA
		taken.By = cmp.Or(s.By, ByUpdate)

		return nil
	}

	save := s.savePlain
	if s.Recipients != nil {
		save = s.saveEncrypted
	}

	err := save(&taken, receive)
	if errors.Is(err, errSameSecond) {
		return taken, nil
	} else if err != nil {
		return Snapshot{}, err
	}

	text, err := json.MarshalIndent(taken, "", "  ")
	if err != nil {
		return Snapshot{}, err
	}

	rename := func(temporary string) error { return os.Rename(temporary, NoteOf(taken.Path)) }
	if err := atomicfile.Write(s.Dir, atomicfile.Text(append(text, '\n')), rename); err != nil {
		// Where each try fails, snapshots that are never pruned would fill the disk.
		return Snapshot{}, errors.Join(err, os.Remove(taken.Path))
	}

	// The new one is kept, whatever stays with it.
	if err := s.prune(); err != nil && s.Warn != nil {
		s.Warn(fmt.Sprintf("a snapshot beyond the newest %d cannot be removed: %v", s.Keep, err))
	}

	return taken, nil
}

// savePlain keeps what receive writes as it is.
func (s Store) savePlain(taken *Snapshot, receive func(*os.File) error) error {
	fill := func(f *os.File) error {
		if err := receive(f); err != nil {
			return err
		}

		return notSnapshot(taken.count(f.Name(), nil))
	}

	return atomicfile.Write(s.Dir, fill, func(temporary string) error { return s.link(temporary, taken, ".db") })
}

// saveEncrypted keeps what receive writes encrypted. The keys can be looked at only in a whole file in plain text, and
// memory may be too small for one.
func (s Store) saveEncrypted(taken *Snapshot, receive func(*os.File) error) error {
	return atomicfile.Nameless(s.Dir, func(plain *os.File) error {
		if err := receive(plain); err != nil {
			return err
		}

		fill := func(f *os.File) error {
			if err := taken.encrypted(plain, s.Recipients)(f); err != nil {
				return err
			}

			return notSnapshot(taken.count(plain.Name(), plain))
		}

		return atomicfile.Write(s.Dir, fill, func(temporary string) error {
			return s.link(temporary, taken, ".db"+extension)
		})
	})
}

func notSnapshot(err error) error {
	if err == nil {
		return nil
	}

	return fmt.Errorf("the data that etcd sent is not a snapshot: %w", err)
}

// errSameSecond says that the cluster has a snapshot of the same second, which is as good.
var errSameSecond = errors.New("the cluster has a snapshot of this second")

// link gives a snapshot its name. Where a file of another cluster, of an unknown one, or with another origin has it,
// the snapshot gets the name of the next second that is free.
func (s Store) link(from string, taken *Snapshot, suffix string) error {
	for {
		taken.Path = filepath.Join(s.Dir, s.Cluster+"."+taken.Taken.Format(timestamp)+suffix)

		if err := os.Link(from, taken.Path); !errors.Is(err, fs.ErrExist) {
			return err
		}

		existing := Snapshot{Path: taken.Path, Taken: taken.Taken}
		if err := existing.readNote(); err == nil && s.retains(existing) {
			*taken = existing

			return errSameSecond
		}

		taken.Taken = taken.Taken.Add(time.Second)
	}
}

// owns says that a snapshot is known to be of the cluster.
func (s Store) owns(one Snapshot) bool { return s.ClusterCA != "" && one.ClusterCA == s.ClusterCA }

// retains says that a snapshot is subject to Keep.
func (s Store) retains(one Snapshot) bool {
	return s.owns(one) && one.origin() == cmp.Or(s.By, ByUpdate)
}

// Newest is the newest snapshot that is known to be of the cluster or, without one, the newest of those of its name
// that do not say whose they are. Without both, its path is empty.
func (s Store) Newest() (newest Snapshot, owned bool, err error) {
	all, err := s.List()
	if err != nil {
		return Snapshot{}, false, err
	}

	if i := slices.IndexFunc(all, s.owns); i >= 0 {
		return all[i], true, nil
	}

	if i := slices.IndexFunc(all, func(one Snapshot) bool { return one.ClusterCA == "" }); i >= 0 {
		return all[i], false, nil
	}

	return Snapshot{}, false, nil
}

// NewerThan says that a snapshot of the store is newer than a file: by the times in their names or, of a file with a
// name of its own, by the revisions of etcd.
func (s Snapshot) NewerThan(path string) (bool, error) {
	if m := nameOf.FindStringSubmatch(filepath.Base(path)); m != nil {
		if taken, err := time.Parse(timestamp, m[2]); err == nil {
			return s.Taken.After(taken), nil
		}
	}

	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close() // read only

	other, err := Read(f)

	return s.Revision > other.Revision, err
}

// writer remembers what went wrong with writing.
type writer struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (n int, err error) {
	n, err = w.to.Write(p)
	w.err = err

	return n, err
}

// NoteOf is the file that says what is known of a snapshot.
func NoteOf(path string) string { return path + ".json" }

// List returns the snapshots of the cluster's name, newest first, as they were when they were taken. A directory that
// is not there holds none. A snapshot whose note cannot be read is known by its name only.
func (s Store) List() ([]Snapshot, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	var found []Snapshot

	for _, entry := range entries {
		m := nameOf.FindStringSubmatch(entry.Name())
		if m == nil || s.Cluster != "" && m[1] != s.Cluster || !entry.Type().IsRegular() {
			continue
		}

		one := Snapshot{Path: filepath.Join(s.Dir, entry.Name())}
		if one.Taken, err = time.Parse(timestamp, m[2]); err != nil {
			continue // the digits are no time, so it is not one of ours
		}

		if one.NoteErr = one.readNote(); one.NoteErr != nil && s.Warn != nil {
			s.Warn(fmt.Sprintf("%s cannot be read (%s) and is ignored. The snapshot itself may be valid: check it "+
				"with 'go run ./stacks/ops etcd check'. Then remove the note", NoteOf(one.Path), one.NoteErr))
		}

		found = append(found, one)
	}

	slices.SortFunc(found, func(a, b Snapshot) int {
		return cmp.Or(b.Taken.Compare(a.Taken),
			cmp.Compare(a.Path, b.Path))
	})

	return found, nil
}

// readNote reads what was noted when the snapshot was taken. Without a note, the file still is a snapshot.
func (s *Snapshot) readNote() error {
	text, err := os.ReadFile(NoteOf(s.Path))
	if err != nil {
		return ignoreMissing(err)
	}

	noted := *s
	if err := json.Unmarshal(text, &noted); err != nil {
		return err
	}

	*s = noted

	return nil
}

// CheckCluster refuses a snapshot whose note says that it is of another cluster. path is the file, or what it was
// decrypted to next to it. Without a note that can be read, or without a fingerprint in it, whose it is is unknown.
func CheckCluster(path, clusterCA string) error {
	for _, file := range []string{path, path + extension} {
		s := Snapshot{Path: file}
		if err := s.readNote(); err == nil && s.ClusterCA != "" && s.ClusterCA != clusterCA {
			return fmt.Errorf("it is a snapshot of another cluster: %s has the fingerprint %s of its Talos API CA, and this "+
				"cluster's is %s; name a snapshot of this cluster, or remove the note if its CA was rotated since",
				NoteOf(file), s.ClusterCA, clusterCA)
		}
	}

	return nil
}

// Verify reads a snapshot of the store and holds it to what was noted when it was taken.
func Verify(s Snapshot) error {
	f, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()

	if isEncrypted(f) {
		return verifyEncrypted(f, s)
	}

	now, err := Read(f)

	switch {
	case err != nil:
		return err
	case s.SHA256 != "" && now.SHA256 != s.SHA256:
		return errors.New("it has changed since it was taken")
	default:
		return nil
	}
}

// prune removes snapshots that are known to be of the cluster and have the same origin, and no others: clusters of one
// name may share the directory.
func (s Store) prune() error {
	all, err := s.List()
	if err != nil {
		return err
	}

	own := slices.DeleteFunc(all, func(one Snapshot) bool { return !s.retains(one) })
	if s.Keep <= 0 || len(own) <= s.Keep {
		return nil
	}

	for _, old := range own[s.Keep:] {
		if protected, err := s.protects(old.Path); err != nil {
			return err
		} else if protected {
			continue
		}

		if err := errors.Join(os.Remove(old.Path), ignoreMissing(os.Remove(NoteOf(old.Path)))); err != nil {
			return err
		}
	}

	return nil
}

// protects says whether a path leads to a protected file, by whatever name.
func (s Store) protects(path string) (bool, error) {
	one, err := os.Stat(path)
	if err != nil {
		return false, ignoreMissing(err)
	}

	for _, name := range s.Protect {
		protected, err := os.Stat(name)
		if ignoreMissing(err) != nil {
			return false, err
		}

		if err == nil && os.SameFile(protected, one) {
			return true, nil
		}
	}

	return false, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}
