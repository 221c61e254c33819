// Package files writes what a stack leaves on the operator's own machine: credentials and configuration, for nobody else to
// read and never to be committed.
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write puts a file into a directory: whole or not at all, readable for its owner only. The directory is made with mode 0700,
// and what git makes of it is settled there: it ignores everything in it. A link that leads out of the directory is replaced,
// not followed.
func Write(dir, name string, content []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	ignore := filepath.Join(dir, ".gitignore")
	if _, err := os.Lstat(ignore); errors.Is(err, os.ErrNotExist) {
		if err := replace(ignore, []byte("*\n")); err != nil {
			return err
		}
	}

	if err := replace(filepath.Join(dir, name), content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}

	return nil
}

func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}

	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())

	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}

	return nil
}
