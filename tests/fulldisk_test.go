package tests

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/ops/importcmd"
	"talos-proxmox/tests/lab/journal"
)

// fill writes zeros into a directory until its disk is full. The function that it returns makes room again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()

	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	require.NoError(t, err)

	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}

	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())

	return func() { require.NoError(t, os.Remove(path)) }
}

// onSmallDisk puts a directory on a disk of its own, for as long as the test runs. That takes an administrator.
func onSmallDisk(t *testing.T, dir string) {
	t.Helper()

	before := t.TempDir()
	require.NoError(t, os.CopyFS(before, os.DirFS(dir)))

	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); errors.Is(err, syscall.EPERM) {
		t.Skip("it takes an administrator to mount a disk")
	} else {
		require.NoError(t, err)
	}

	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	require.NoError(t, os.CopyFS(dir, os.DirFS(before)))
}

// TestFullStateDisk: the disk with the state is full in the middle of a creation. Once there is room, the messages lead
// on, and nothing is made twice.
func TestFullStateDisk(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "controlplane, count: 3", "controlplane, count: 1", 1)))
	state := filepath.Join(r.Backend.Dir(), "state")
	onSmallDisk(t, state)

	var free func()

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`/clone$`), Kind: journal.Interfere,
		Before: func(journal.Entry) { free = fill(t, state) },
	})

	assert.Contains(t, failUp(t, r.Stack), "failed to save snapshot: ")

	made := uuids(t, r)

	free()

	// What was made while the disk was full is in the state, or it is not.
	out := newOutput(t)
	if _, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out)); err != nil {
		require.Contains(t, out.String(), "but not in this stack's state")

		files, _ := adoptable(t, r, importcmd.Options{})
		importFile(t, r, files.Import)
		up(t, r.Stack)
	}

	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, made, uuids(t, r))
	requireNoChange(t, r.Stack)
}
