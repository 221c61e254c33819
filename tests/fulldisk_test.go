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

	"talos-proxmox/components/etcdbackup"
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

const needsRoot = "SKIPPED: it takes root to mount a disk. Run the tests as root, or with 'unshare -Urm go test …'"

// onSmallDisk puts a directory on a disk of its own, for as long as the test runs. That takes an administrator.
func onSmallDisk(t *testing.T, dir string) {
	t.Helper()

	before := t.TempDir()
	require.NoError(t, os.CopyFS(before, os.DirFS(dir)))

	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); errors.Is(err, syscall.EPERM) {
		t.Skip(needsRoot)
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

// TestFullProjectDisk: the disk of the project is full. The files of the cluster are not written, and no snapshot of
// etcd can be kept, so nothing is changed that needs one. Once there is room, the same update does both.
func TestFullProjectDisk(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"template", "metal", "", "reserved"}.stack()))
	set(t, r.Stack, "outputs.files.write[0]", "kubeconfig")
	set(t, r.Stack, "outputs.files.dir", "keys")

	project := r.Stack.Workspace().WorkDir()
	keys, backups := filepath.Join(project, "keys"), filepath.Join(project, "etcd-backups")

	var free []func()

	for _, dir := range []string{keys, backups} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		onSmallDisk(t, dir)
		free = append(free, fill(t, dir))
	}

	assert.Contains(t, failUp(t, r.Stack), "outputs.files: ")
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.NoFileExists(t, filepath.Join(keys, "kubeconfig"))

	free[0]()
	up(t, r.Stack)

	written, err := os.Stat(filepath.Join(keys, "kubeconfig"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), written.Mode())

	before := machine(t, r, "pair-control-1").PID

	set(t, r.Stack, "pools.control.cores", "3")
	assert.Contains(t, failUp(t, r.Stack), "no space left on device")
	assert.Equal(t, before, machine(t, r, "pair-control-1").PID, "it was not restarted")

	free[1]()
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.EqualValues(t, 3, vmConfig(t, r, "pair-control-1")["cores"])

	kept, err := etcdbackup.Store{Dir: backups, Cluster: "pair"}.List()
	require.NoError(t, err)
	assert.Len(t, kept, 1)
	requireNoChange(t, r.Stack)
}

// TestReadOnlyHome: an update needs to write nothing into the CLI's own directory (PULUMI_HOME).
func TestReadOnlyHome(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"template", "metal", "", "reserved"}.stack()))
	home := filepath.Join(r.Backend.Dir(), "home")

	if err := syscall.Mount(home, home, "", syscall.MS_BIND, ""); errors.Is(err, syscall.EPERM) {
		t.Skip(needsRoot)
	} else {
		require.NoError(t, err)
	}

	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(home, syscall.MNT_DETACH)) })
	require.NoError(t, syscall.Mount("", home, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))

	require.ErrorIs(t, os.WriteFile(filepath.Join(home, "written"), nil, 0o600), syscall.EROFS)

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)
}
