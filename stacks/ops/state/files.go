package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components/atomicfile"
)

// Snapshots are the files of one stack's states in a directory. Others may be in it.
type Snapshots struct {
	Dir            string
	Project, Stack string
}

// File is one snapshot.
type File struct {
	Path string
	// Taken is when, in UTC, to the second.
	Taken time.Time
	// PreRestore says that it was kept by a restore, before the state was replaced.
	PreRestore bool
	Deployment Deployment
	// Err says why it is of no use.
	Err error

	text []byte
}

const (
	timestamp  = "20060102-150405"
	preRestore = ".pre-restore"
)

// nameOf takes a file name apart: the stack, whether it was kept by a restore, and when.
var nameOf = regexp.MustCompile(`^(.+?)(\` + preRestore + `)?\.(\d{8}-\d{6})\.json$`)

// write keeps a state in a new file: whole or not at all, for its owner alone to read, and never over another file.
// suffix is empty or preRestore.
func (s Snapshots) write(ctx context.Context, suffix string, text []byte) (File, error) {
	// What is replaced may be broken, and is kept all the same.
	deployment, broken := decode(text, s.Project, s.Stack)
	if broken != nil && suffix != preRestore {
		return File{}, broken
	}

	kept := File{PreRestore: suffix != "", Deployment: deployment, Err: broken}

	err := atomicfile.Write(s.Dir, atomicfile.Text(text), func(temporary string) error {
		for {
			kept.Taken = time.Now().UTC().Truncate(time.Second)
			kept.Path = filepath.Join(s.Dir, s.Stack+suffix+"."+kept.Taken.Format(timestamp)+".json")

			// The name may be that of another snapshot of this second.
			if err := os.Link(temporary, kept.Path); !errors.Is(err, fs.ErrExist) {
				return err
			}

			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(kept.Taken.Add(time.Second))):
			}
		}
	})
	if err != nil {
		return File{}, err
	}

	return kept, nil
}

// List returns the stack's snapshots, newest first. A directory that is not there holds none.
func (s Snapshots) List() ([]File, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	var found []File

	for _, entry := range entries {
		m := nameOf.FindStringSubmatch(entry.Name())
		if m == nil || m[1] != s.Stack || !entry.Type().IsRegular() {
			continue
		}

		f, err := s.Read(filepath.Join(s.Dir, entry.Name()))
		f.Err, f.PreRestore = err, m[2] != ""

		if f.Taken, err = time.Parse(timestamp, m[3]); err != nil {
			continue // the digits are no time, so it is not one of ours
		}

		found = append(found, f)
	}

	slices.SortStableFunc(found, func(a, b File) int {
		if c := b.Taken.Compare(a.Taken); c != 0 {
			return c
		}

		return strings.Compare(a.Path, b.Path)
	})

	return found, nil
}

// Read reads a snapshot from any file. The error says why it cannot be restored.
func (s Snapshots) Read(path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{Path: path}, err
	}

	deployment, err := decode(text, s.Project, s.Stack)
	if err != nil {
		return File{Path: path}, fmt.Errorf("%s is not a snapshot to restore: %w", path, err)
	}

	return File{Path: path, Deployment: deployment, text: text}, nil
}

// useful says that a snapshot can be restored and holds something, and was not kept by a restore.
func (f File) useful() bool { return f.Err == nil && !f.PreRestore && len(f.Deployment.URNs) > 0 }

// Newest is the newest snapshot that can be restored and holds something. What a restore has kept is not meant by it.
func (s Snapshots) Newest() (File, error) {
	all, err := s.List()
	if err != nil {
		return File{}, err
	}

	for _, f := range all {
		if f.useful() {
			return f, nil
		}
	}

	return File{}, fmt.Errorf("there is no snapshot of stack %s in %s that holds resources", s.Stack, s.Dir)
}

// Prune removes the oldest snapshots beyond a number, and returns what it has removed. What cannot be read does not
// count as a snapshot and stays, as does what a restore has kept, and a snapshot without resources: those of a lost
// backend would take the place of the ones that can be restored.
func (s Snapshots) Prune(keep int) ([]File, error) {
	if keep < 0 {
		return nil, fmt.Errorf("%d snapshots cannot be kept", keep)
	}

	all, err := s.List()
	if err != nil {
		return nil, err
	}

	var removed []File

	for _, f := range all {
		if !f.useful() {
			continue
		}

		if keep > 0 {
			keep--

			continue
		}

		if err := os.Remove(f.Path); err != nil {
			return removed, err
		}

		removed = append(removed, f)
	}

	return removed, nil
}
