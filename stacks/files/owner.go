package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Marker is the file that says whose the files of a directory are. Stacks of one project share the default directory.
const Marker = ".owner.json"

// Owner is the cluster of a stack.
type Owner struct {
	Organization string `json:"organization"`
	Project      string `json:"project"`
	Stack        string `json:"stack"`
	Cluster      string `json:"cluster"`
}

// String names the owner in messages.
func (o Owner) String() string {
	return fmt.Sprintf("cluster %s of stack %s/%s/%s", o.Cluster, o.Organization, o.Project, o.Stack)
}

// NotOwnedError is why a directory is not known to be an owner's.
type NotOwnedError string

// Error implements error.
func (e NotOwnedError) Error() string { return string(e) }

// Check refuses a directory of a project whose files are another owner's, or whose owner cannot be read. It writes
// nothing. One that is missing, or has no marker, is no owner's yet.
func Check(project, dir string, owner Owner) (err error) {
	root, err := os.OpenRoot(project)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	return check(root, filepath.Join(dir, Marker), owner)
}

func check(root *os.Root, marker string, owner Owner) error {
	text, err := root.ReadFile(marker)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	var found Owner
	if err == nil {
		err = json.Unmarshal(text, &found)
	}

	if err != nil {
		return NotOwnedError(fmt.Sprintf("must be a directory of %s, and %s in it cannot be read: %s", owner, Marker, err))
	}

	if found != owner {
		return NotOwnedError(fmt.Sprintf("must be a directory of %s, and holds files of %s", owner, found))
	}

	return nil
}

// Claim makes a directory of a project the owner's before a file is written, unless it is another's. One without a
// marker may have files that the operator, or an earlier version of this program, has put there: those in the place of
// wanted, with other content, get another name, which warn is told.
func Claim(project, dir string, owner Owner, wanted map[string]string, warn func(message string)) (err error) {
	place, err := open(project, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Close()) }()

	// Of two that come at once, only one creates it.
	f, err := place.OpenFile(Marker, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return check(place, Marker, owner)
	} else if err != nil {
		return err
	}

	// Before the marker has its text: one that is empty is refused, so a run that is killed here is not followed by one
	// that replaces the files.
	err = moveAside(place, dir, wanted, warn)

	if err == nil {
		var text []byte
		if text, err = json.MarshalIndent(owner, "", "  "); err == nil {
			_, err = f.Write(append(text, '\n'))
		}

		if err = errors.Join(err, f.Sync()); err != nil {
			err = fmt.Errorf("writing %s: %w", Marker, err)
		}
	}

	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, place.Remove(Marker))
	}

	return nil
}

// moveAside renames what is in the place of the wanted files and differs from them.
func moveAside(place *os.Root, dir string, wanted map[string]string, warn func(message string)) error {
	at := time.Now().UTC().Format("20060102-150405")

	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		info, err := place.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}

		if info.Mode().IsRegular() {
			text, err := place.ReadFile(name)
			if err != nil {
				return err
			}

			if string(text) == wanted[name] {
				continue
			}
		}

		kept, err := free(place, name+".before-"+at)
		if err != nil {
			return err
		}

		if err := place.Rename(name, kept); err != nil {
			return err
		}

		warn(fmt.Sprintf("%s was there before the first files of this cluster, with other content: it is now %s",
			filepath.Join(dir, name), filepath.Join(dir, kept)))
	}

	return nil
}

// free is a name that no file has: the given one, or one that begins with it.
func free(place *os.Root, name string) (string, error) {
	for n, candidate := 2, name; ; n++ {
		_, err := place.Lstat(candidate)
		if errors.Is(err, fs.ErrNotExist) {
			return candidate, nil
		} else if err != nil {
			return "", err
		}

		candidate = fmt.Sprintf("%s-%d", name, n)
	}
}
