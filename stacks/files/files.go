// Package files writes what a stack leaves on the operator's own machine: credentials and configuration, for no one
// else to read and never to be committed.
package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write puts a file into a directory of a project: whole or not at all, readable for its owner only. The directory is
// made with mode 0700, and what git makes of it is settled there: it ignores everything in it. A link in the place of
// the file is replaced, not followed; one that leads out of the project on the way to it is an error.
func Write(project, dir, name string, content []byte) (err error) {
	place, err := open(project, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Close()) }()

	const ignore = ".gitignore"
	if _, err := place.Lstat(ignore); errors.Is(err, os.ErrNotExist) {
		if err := replace(place, ignore, []byte("*\n")); err != nil {
			return err
		}
	}

	if err := replace(place, name, content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}

	return nil
}

// open makes a directory of a project where it is missing.
func open(project, dir string) (place *os.Root, err error) {
	root, err := os.OpenRoot(project)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	if err := root.MkdirAll(filepath.Clean(dir), 0o700); err != nil {
		return nil, fmt.Errorf("making %s, which must be a directory inside the project: %w", dir, err)
	}

	place, err = root.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening %s, which must be a directory inside the project: %w", dir, err)
	}

	return place, nil
}

func replace(place *os.Root, name string, content []byte) error {
	whole := "." + name + "." + rand.Text()

	f, err := place.OpenFile(whole, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())

	if err == nil {
		err = place.Rename(whole, name)
	}

	if err != nil {
		return errors.Join(err, place.Remove(whole))
	}

	return nil
}
