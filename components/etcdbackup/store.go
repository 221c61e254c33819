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

	"talos-proxmox/components/wholefile"
)

// Store is a directory with the snapshots of one cluster. Others may be in it.
type Store struct {
	// Dir is made when it is first written to, for its owner only.
	Dir string
	// Cluster is the cluster's name. Without one, List finds the snapshots of all.
	Cluster string
	// Keep is how many snapshots stay when another is taken; 0: all of them.
	Keep int
}

const timestamp = "20060102-150405"

// nameOf takes a file's name apart: the cluster, and when.
var nameOf = regexp.MustCompile(`^(.+)\.(\d{8}-\d{6})\.db$`)

// Take keeps what fetch writes in a new file: whole and sound or not at all, for nobody else to read. What is known of it is
// written beside it. The oldest snapshots beyond Keep go.
func (s Store) Take(now time.Time, fetch func(io.Writer) error) (Snapshot, error) {
	var taken Snapshot

	fill := func(f *os.File) (err error) {
		if err := fetch(f); err != nil {
			return err
		}

		if taken, err = Read(f); err != nil {
			return fmt.Errorf("what etcd sent is no snapshot: %w", err)
		}

		return nil
	}

	err := wholefile.Write(s.Dir, fill, func(unfinished string) error {
		taken.Taken = now.UTC().Truncate(time.Second)
		taken.Path = filepath.Join(s.Dir, s.Cluster+"."+taken.Taken.Format(timestamp)+".db")

		return os.Link(unfinished, taken.Path)
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

	if err := os.WriteFile(beside(taken.Path), append(text, '\n'), 0o600); err != nil {
		return Snapshot{}, err
	}

	return taken, s.prune()
}

// beside is the file that says what is known of a snapshot.
func beside(path string) string { return path + ".json" }

// List returns the cluster's snapshots, newest first, as they were when they were taken. A directory that is not there holds
// none.
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

		// Without what was noted, the file still is one.
		if text, err := os.ReadFile(beside(one.Path)); err == nil {
			if err := json.Unmarshal(text, &one); err != nil {
				return nil, fmt.Errorf("%s: %w", beside(one.Path), err)
			}
		}

		found = append(found, one)
	}

	slices.SortFunc(found, func(a, b Snapshot) int { return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.Path, b.Path)) })

	return found, nil
}

// Verify reads a snapshot of the store and holds it to what was noted when it was taken.
func Verify(s Snapshot) error {
	f, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()

	now, err := Read(f)

	switch {
	case err != nil:
		return err
	case s.SHA256 != "" && now.SHA256 != s.SHA256:
		return errors.New("it is not what it was when it was taken")
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
		if err := errors.Join(os.Remove(old.Path), ignoreMissing(os.Remove(beside(old.Path)))); err != nil {
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
