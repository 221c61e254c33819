package bootstrap

import (
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/rollout/talos/talostest"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// TestNewestSnapshot: a cluster that has lost its etcd is offered no snapshot of another one with its name.
func TestNewestSnapshot(t *testing.T) {
	t.Parallel()

	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("edge")})
	credentials := talosapi.Credentials{CA: base64.StdEncoding.EncodeToString(text)}
	own, err := credentials.CAFingerprint()
	require.NoError(t, err)

	const none = "no snapshot of it is in ./etcd-backups"

	b := New(talostest.Unreachable())
	assert.Equal(t, "no snapshot of it is known", b.newestSnapshot(credentials))

	dir := t.TempDir()
	b.Plan.Cluster, b.Plan.Backup = "edge", &spec.Backup{Dir: "./etcd-backups"}
	b.Snapshots = &etcdbackup.Store{Dir: dir, Cluster: "edge"}
	assert.Equal(t, none, b.newestSnapshot(credentials))

	snapshot := func(name, note string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.WriteFile(etcdbackup.NoteOf(path), []byte(note), 0o600))
	}

	snapshot("edge.20261121-200000.db", `{"clusterCa": "another"}`)
	assert.Equal(t, none, b.newestSnapshot(credentials))

	snapshot("edge.20261121-190000.db", `{"sha256": "00"}`)
	assert.Equal(t, "no snapshot is known to be of it; the newest that may be is etcd-backups/edge.20261121-190000.db, "+
		"which does not say which cluster it is of", b.newestSnapshot(credentials))

	snapshot("edge.20261121-180000.db", `{"clusterCa": "`+own+`"}`)
	assert.Equal(t, "its newest snapshot is etcd-backups/edge.20261121-180000.db", b.newestSnapshot(credentials))

	assert.Contains(t, b.newestSnapshot(talosapi.Credentials{}), "its snapshots are unknown: ")
}
