package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWrite: a file is there whole, for its owner only, or nothing is.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, "file")
	link := func(unfinished string) error { return os.Link(unfinished, path) }

	require.NoError(t, Write(dir, Text([]byte("first")), link))
	require.ErrorIs(t, Write(dir, Text([]byte("second")), link), os.ErrExist)
	require.EqualError(t, Write(dir, func(f *os.File) error {
		_, err := f.WriteString("half")

		return errors.Join(err, errors.New("lost"))
	}, link), "lost")

	for file, mode := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm(), file)
	}

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "first", string(text))

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

// TestFullDisk: a disk that is full is called that.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()

	err := Write(dir, func(*os.File) error {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)

		_, err = full.WriteString("text")

		return errors.Join(err, full.Close())
	}, func(string) error { return nil })
	require.EqualError(t, err, "the disk that holds "+dir+" is full: write /dev/full: no space left on device")

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestNameless: a file that is worked with has no name, and a disk that is full is called that once.
func TestNameless(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")

	require.NoError(t, Nameless(dir, func(f *os.File) error {
		_, err := f.WriteString("secret")
		require.NoError(t, err)

		info, err := f.Stat()
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		assert.EqualValues(t, 6, info.Size())

		found, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, found)

		return nil
	}))

	err := Nameless(dir, func(*os.File) error {
		return Write(dir, func(*os.File) error { return syscall.ENOSPC }, nil)
	})
	require.EqualError(t, err, "the disk that holds "+dir+" is full: no space left on device")
	require.ErrorIs(t, err, syscall.ENOSPC)

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestKilled: what a killed run has left goes with the next file; what is still being written stays, and so does what
// is of others.
func TestKilled(t *testing.T) {
	dir := t.TempDir()

	here := ours()

	child := exec.Command(os.Args[0], "-test.run=^$")
	require.NoError(t, child.Run())

	stay := []string{
		fmt.Sprintf("%s%d.1", here, os.Getpid()), fmt.Sprintf("%sother.lan.%d.1", prefix, child.Process.Pid),
		here + "x.1", ".unfinished-1",
	}
	recent := fmt.Sprintf("%s%d.2", here, child.Process.Pid)

	for _, name := range append(stay, recent, fmt.Sprintf("%s%d.1", here, child.Process.Pid)) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))

		if written := time.Now().Add(-2 * abandoned); name != recent {
			require.NoError(t, os.Chtimes(filepath.Join(dir, name), written, written))
		}
	}

	stay = append(stay, recent)

	// Of another machine it is not known whether its writer has died; a day is enough.
	old := filepath.Join(dir, prefix+"gone.lan.1.1")
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, os.Chtimes(old, time.Now().Add(-2*foreign), time.Now().Add(-2*foreign)))

	require.NoError(t, Write(dir, Text([]byte("text")), func(unfinished string) error {
		return os.Rename(unfinished, filepath.Join(dir, "file"))
	}))

	left, err := os.ReadDir(dir)
	require.NoError(t, err)

	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}

	assert.ElementsMatch(t, append(stay, "file"), names)
}
