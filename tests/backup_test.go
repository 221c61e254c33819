package tests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/etcdbackup"
)

// TestBrokenNote: a note next to a snapshot of etcd that was cut off is reported and passed over. The update goes on,
// and keeps its own snapshot.
func TestBrokenNote(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"template", "metal", "", "reserved"}.stack()))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	store := etcdbackup.Store{Dir: filepath.Join(r.Stack.Workspace().WorkDir(), "etcd-backups"), Cluster: "pair"}
	old := filepath.Join(store.Dir, "pair.20200101-000000.db")
	require.NoError(t, os.MkdirAll(store.Dir, 0o700))
	require.NoError(t, os.WriteFile(old, []byte("the beginning of a snapshot"), 0o600))
	require.NoError(t, os.WriteFile(old+".json", []byte(`{"sha256": "6f5902ac`), 0o600))

	set(t, r.Stack, "pools.control.cores", "3")

	out := newOutput(t)
	_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
	require.NoError(t, err)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Contains(t, out.String(), "lifecycle.backup: "+old+
		".json cannot be read (unexpected end of JSON input) and is ignored")
	assert.EqualValues(t, 3, vmConfig(t, r, "pair-control-1")["cores"])

	kept, err := store.List()
	require.NoError(t, err)
	require.Len(t, kept, 2)
	assert.Equal(t, old, kept[1].Path)
	require.Error(t, kept[1].NoteErr)
	require.NoError(t, kept[0].NoteErr)
	require.NoError(t, etcdbackup.Verify(kept[0]))
	requireNoChange(t, r.Stack)
}
