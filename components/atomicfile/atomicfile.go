// Package atomicfile writes files that hold secrets: completely or not at all, readable by their owner only.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Write makes a file in a directory, which is made with mode 0700 where it is not there. fill writes it, and place
// gives it its name when it is on the disk: os.Link takes none that is taken, os.Rename takes any. Whatever fails,
// nothing is left. What a run has left that was killed is removed by the next one that writes into the directory.
func Write(dir string, fill func(f *os.File) error, place func(temporary string) error) error {
	return fullOf(dir, write(dir, fill, place))
}

// Nameless has use work with a file on the disk of a directory, which is made as by Write. Its name goes before
// anything is written to it: whatever ends the run, nothing of it is left, and other programs that read the
// directory do not meet it. A system that keeps names of open files has it until use ends.
func Nameless(dir string, use func(f *os.File) error) error {
	f, err := create(dir)
	if err != nil {
		return fullOf(dir, err)
	}
	defer f.Close() // nothing of it is kept

	if os.Remove(f.Name()) != nil {
		defer os.Remove(f.Name()) //nolint:errcheck // the next writer removes it
		defer f.Close()           // before its name
	}

	return fullOf(dir, use(f))
}

// fullError is that a disk is full, and which.
type fullError struct {
	dir string
	err error
}

// Error implements error.
func (e fullError) Error() string {
	return fmt.Sprintf("the disk that holds %s is full: %v", e.dir, e.err)
}

// Unwrap returns what the system said.
func (e fullError) Unwrap() error { return e.err }

// fullOf says once of an error that it is the disk.
func fullOf(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) && !errors.As(err, new(fullError)) {
		return fullError{dir, err}
	}

	return err
}

// create makes a file with a name of its own, and removes what dead writers have left next to it.
func create(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	ours := ours()
	sweep(dir, ours)

	return os.CreateTemp(dir, fmt.Sprintf("%s%d.*", ours, os.Getpid()))
}

func write(dir string, fill func(f *os.File) error, place func(temporary string) error) error {
	f, err := create(dir)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has its name already, or is of no use

	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		return err
	}

	return place(f.Name())
}

// SecretDir makes a directory for secrets in plain text that are of no use for long: outside of the project, and in
// memory where the session has a place for that.
func SecretDir(pattern string) (string, error) {
	return os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), pattern)
}

// prefix begins the names of files that are being written. No other program uses it.
const prefix = ".talos-proxmox-unfinished-"

// abandoned is the age from which a file may have been left. Containers with one name do not see each other's
// processes. Whether a writer of another machine has died is not known: no file takes it as long as foreign.
const (
	abandoned = time.Hour
	foreign   = 24 * time.Hour
)

// ours begins the names of those that this machine writes. The number of the writer's process follows.
func ours() string {
	host, _ := os.Hostname()

	return prefix + host + "."
}

// sweep removes the files of writers that have died. One that cannot be removed harms no other.
func sweep(dir, ours string) {
	entries, _ := os.ReadDir(dir)

	for _, e := range entries {
		age := foreign

		if name, found := strings.CutPrefix(e.Name(), ours); found {
			number, _, _ := strings.Cut(name, ".")
			if pid, err := strconv.Atoi(number); err != nil || !dead(pid) {
				continue
			}

			age = abandoned
		}

		if !strings.HasPrefix(e.Name(), prefix) || !e.Type().IsRegular() {
			continue
		}

		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// dead says that there is no process of a number. One whose number was given again counts as alive.
func dead(pid int) bool {
	p, err := os.FindProcess(pid)

	return err == nil && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// Text is a fill that writes a text.
func Text(text []byte) func(f *os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(text)

		return err
	}
}
