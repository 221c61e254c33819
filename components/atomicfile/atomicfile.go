// Package atomicfile writes files that hold secrets: completely or not at all, readable by their owner only.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Write makes a file in a directory, which is made with mode 0700 where it is not there. fill writes it, and place
// gives it its name when it is on the disk: os.Link takes none that is taken, os.Rename takes any. Whatever fails,
// nothing is left.
func Write(dir string, fill func(f *os.File) error, place func(unfinished string) error) error {
	err := write(dir, fill, place)
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk that holds %s is full: %w", dir, err)
	}

	return err
}

func write(dir string, fill func(f *os.File) error, place func(unfinished string) error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	f, err := os.CreateTemp(dir, ".unfinished-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has its name already, or is of no use

	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		return err
	}

	return place(f.Name())
}

// Text is a fill that writes a text.
func Text(text []byte) func(f *os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(text)

		return err
	}
}
