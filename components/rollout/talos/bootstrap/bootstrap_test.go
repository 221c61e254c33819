package bootstrap

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
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

// newKept is a Bootstrap with a store of snapshots, and what makes one in it with a note.
func newKept(t *testing.T) (b *Bootstrap, c talosapi.Credentials, snapshot func(name, clusterCA string, revision int)) {
	t.Helper()

	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("edge")})
	c = talosapi.Credentials{CA: base64.StdEncoding.EncodeToString(text)}

	b = New(talostest.Unreachable())
	b.Dir = t.TempDir()
	b.Plan.Cluster, b.Plan.Backup = "edge", &spec.Backup{Dir: "./etcd-backups"}
	b.Snapshots = &etcdbackup.Store{Dir: filepath.Join(b.Dir, "etcd-backups"), Cluster: "edge"}
	require.NoError(t, os.Mkdir(b.Snapshots.Dir, 0o700))

	return b, c, func(name, clusterCA string, revision int) {
		path := filepath.Join(b.Snapshots.Dir, name)
		note := fmt.Sprintf(`{"clusterCa": %q, "revision": %d}`, clusterCA, revision)

		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.WriteFile(etcdbackup.NoteOf(path), []byte(note), 0o600))
	}
}

// TestCheckBegin: a cluster that has a snapshot has existed, even if the state knows nothing of it. An empty one is not
// begun in its place, unless the operator says so.
func TestCheckBegin(t *testing.T) {
	t.Parallel()

	b, c, snapshot := newKept(t)
	own, err := c.CAFingerprint()
	require.NoError(t, err)

	require.NoError(t, b.checkBegin(c), "it has no snapshot")

	snapshot("edge.20260121-200000.db", "another", 1)
	snapshot("edge.20260121-190000.db", "", 1)
	require.NoError(t, b.checkBegin(c), "none is known to be of it")

	snapshot("edge.20260121-180000.db", own, 1)
	require.ErrorContains(t, b.checkBegin(c), "etcd is lost: no control plane holds its data, and edge would start as an "+
		"empty cluster; its newest snapshot is etcd-backups/edge.20260121-180000.db; to start from a snapshot, set "+
		"cluster.recoverFrom to it; to start with an empty cluster, set lifecycle.acceptEmptyCluster to edge")
	require.ErrorContains(t, b.checkBegin(talosapi.Credentials{}), "its snapshots are unknown")

	b.Plan.AcceptEmpty = true
	require.NoError(t, b.checkBegin(c))

	b.Plan.AcceptEmpty, b.Plan.RecoverFrom = false, "etcd-backups/edge.20260121-180000.db"
	require.NoError(t, b.checkBegin(c))
}

// TestCheckNewest: what is named in cluster.recoverFrom may be left of an earlier recovery, so an older snapshot is not
// restored while a newer one of the cluster is there.
func TestCheckNewest(t *testing.T) {
	t.Parallel()

	b, c, snapshot := newKept(t)
	own, err := c.CAFingerprint()
	require.NoError(t, err)

	const old = "etcd-backups/edge.20260121-180000.db"

	require.NoError(t, b.CheckNewest(c), "nothing is named")

	b.Plan.RecoverFrom = old
	snapshot("edge.20260121-180000.db", own, 100)
	snapshot("edge.20260601-180000.db", "another", 900)
	require.NoError(t, b.CheckNewest(c))

	// The named file was decrypted from it.
	snapshot("edge.20260121-180000.db.age", own, 100)
	require.NoError(t, b.CheckNewest(c))

	snapshot("edge.20260601-170000.db", own, 500)
	require.EqualError(t, b.CheckNewest(c), "cluster.recoverFrom: nothing is recovered from "+old+": "+
		"etcd-backups/edge.20260601-170000.db is a newer snapshot of this cluster; set cluster.recoverFrom to the newest "+
		"one; or, to lose what has changed since the older one, move the newer ones out of ./etcd-backups")
	require.Error(t, b.checkBegin(c))

	b.Plan.RecoverFrom = "etcd-backups/edge.20260601-170000.db"
	require.NoError(t, b.CheckNewest(c))

	b.Plan.RecoverFrom = "copy.db"
	require.ErrorContains(t, b.CheckNewest(c), "nothing can be recovered from copy.db")
}

// TestWarnArmed: a snapshot to recover from that stays named is warned of once in a run, while etcd has its data.
func TestWarnArmed(t *testing.T) {
	t.Parallel()

	var warned []string

	b := New(talostest.Unreachable())
	b.Warn = func(message string) { warned = append(warned, message) }

	report := func(data talosapi.EtcdData) talosapi.EtcdReport {
		r := make(talosapi.EtcdReport, 1)
		r[0].Data = data

		return r
	}

	b.warnArmed(report(talosapi.EtcdHeld))
	b.Plan.RecoverFrom = "old.db"
	b.warnArmed(report(talosapi.EtcdEmpty))
	assert.Empty(t, warned)

	b.warnArmed(report(talosapi.EtcdHeld))
	b.warnArmed(report(talosapi.EtcdHeld))
	assert.Equal(t, []string{"cluster.recoverFrom is still old.db, and etcd has its data: remove the key, or the next " +
		"loss of all control planes starts the cluster from that snapshot"}, warned)
}
