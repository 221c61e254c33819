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

// Store is a directory with the snapshots of one cluster. Others may be in it.
type Store struct {
	// Dir is made when it is first written to, for its owner only.
	Dir string
	// Cluster is the cluster's name. Without one, List finds the snapshots of all.
	Cluster string
	// Keep is how many snapshots stay when another is taken; 0: all of them.
	Keep int
	// Recipients are those who can decrypt snapshots; nil: they are not encrypted.
	Recipients []age.Recipient
	// Warn is told of notes that cannot be read; nil: they are passed over in silence.
	Warn func(message string)
}

const timestamp = "20060102-150405"

// nameOf takes a file's name apart: the cluster, and when.
var nameOf = regexp.MustCompile(`^(.+)\.(\d{8}-\d{6})\.db(\.age)?$`)

// Take keeps what fetch writes in a new file: whole and sound or not at all, readable for its owner only. A note next
// to it, written in the same way, says what is known of it. The oldest snapshots beyond Keep go.
func (s Store) Take(now time.Time, fetch func(io.Writer) error) (Snapshot, error) {
	var taken Snapshot

	fill := func(f *os.File) (err error) {
		w := &writer{to: f}
		if err := fetch(w); w.err != nil {
			return w.err // whatever fetch makes of it, its source is not to blame
		} else if err != nil {
			return err
		}

		if taken, err = Read(f); err != nil {
			return fmt.Errorf("the data that etcd sent is not a snapshot: %w", err)
		}

		// What etcd sends ends with a hash.
		if taken.Raw {
			return fmt.Errorf("the snapshot that etcd sent was cut off after %d bytes", taken.Size)
		}

		return nil
	}

	err := atomicfile.Write(s.Dir, fill, func(temporary string) error {
		taken.Taken = now.UTC().Truncate(time.Second)
		taken.Path = filepath.Join(s.Dir, s.Cluster+"."+taken.Taken.Format(timestamp)+".db")

		if s.Recipients == nil {
			return os.Link(temporary, taken.Path)
		}

		taken.Path += extension

		return atomicfile.Write(s.Dir, taken.encrypted(temporary, s.Recipients), func(encrypted string) error {
			return os.Link(encrypted, taken.Path)
		})
	})
	if errors.Is(err, fs.ErrExist) {
		return taken, nil // a snapshot of the same second is as good
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

	return taken, s.prune()
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

// List returns the cluster's snapshots, newest first, as they were when they were taken. A directory that is not there
// holds none. A snapshot whose note cannot be read is known by its name only.
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

func (s Store) prune() error {
	all, err := s.List()
	if err != nil || s.Keep == 0 || len(all) <= s.Keep {
		return err
	}

	for _, old := range all[s.Keep:] {
		if err := errors.Join(os.Remove(old.Path), ignoreMissing(os.Remove(NoteOf(old.Path)))); err != nil {
			return err
		}
	}

	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}
