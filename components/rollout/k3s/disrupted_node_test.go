package k3s

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// snapshots is the part of a server that takes snapshots.
type snapshots struct {
	token string
	// status and answer are given to those who know the token; zero: a snapshot has been taken.
	status int
	answer string
	// requests that came.
	requests []string
}

func (*snapshots) Handles(r *http.Request) bool { return r.URL.Path == "/db/snapshot" }

func (s *snapshots) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); r.Method != http.MethodPost || user != "server" || password != s.token {
		w.WriteHeader(http.StatusUnauthorized)

		return
	}

	body, _ := io.ReadAll(r.Body)
	s.requests = append(s.requests, string(body))

	if s.status != 0 {
		w.WriteHeader(s.status)
		_, _ = w.Write([]byte(s.answer))

		return
	}

	_, _ = w.Write([]byte(`{"created":["pulumi-edge-server-1-1700000000"],"deleted":null}`))
}

// TestBackup: a server keeps etcd before something happens to it, and nothing happens where none does.
func TestBackup(t *testing.T) {
	e := newEdge(t)
	server := disruptedNode{e.Cluster, e.Plan.Nodes()[0]}

	var said, warned []string

	e.Progress = func(message string) { said = append(said, message) }
	e.Warn = func(message string) { warned = append(warned, message) }

	require.NoError(t, server.Backup(t.Context()))
	assert.Equal(t, []string{"snapshot of etcd saved on edge-server-1 as pulumi-edge-server-1-1700000000"}, said)
	assert.JSONEq(t, `{"operation":"save","name":["talos-proxmox-auto"],"retention":10}`, e.snapshots.requests[0])

	for _, row := range []struct {
		name, answer string
		status       int
		want         string
	}{
		{
			"etcd has no leader", `{"kind":"Status","message":"etcdserver: no leader"}`, http.StatusInternalServerError,
			"no server has taken a snapshot of etcd (edge-server-1: etcdserver: no leader); fix the cause, or set " +
				"lifecycle.backup.enabled to false",
		},
		{
			"not JSON", "<html>", http.StatusBadGateway,
			"no server has taken a snapshot of etcd (edge-server-1: 502 Bad Gateway); fix the cause, or set " +
				"lifecycle.backup.enabled to false",
		},
		{
			"nothing was made", "{}", http.StatusOK,
			"no server has taken a snapshot of etcd (edge-server-1: its answer names no snapshot); fix the cause, " +
				"or set lifecycle.backup.enabled to false",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			e.snapshots.status, e.snapshots.answer = row.status, row.answer

			require.EqualError(t, server.Backup(t.Context()), row.want)
		})
	}

	t.Run("an old K3s", func(t *testing.T) {
		e.snapshots.status, e.snapshots.answer = http.StatusNotFound, "404 page not found"

		require.NoError(t, server.Backup(t.Context()))
		assert.Equal(t, []string{
			"lifecycle.backup: edge-server-1: its K3s takes no snapshots on request (before April 2024); " +
				"only its last scheduled snapshot is available",
		}, warned)
	})

	t.Run("not enabled", func(t *testing.T) {
		e.Plan.Backup = nil
		before := len(e.snapshots.requests)

		require.NoError(t, server.Backup(t.Context()))
		assert.Len(t, e.snapshots.requests, before)
	})

	t.Run("no server answers", func(t *testing.T) {
		e.Plan.Backup = &spec.Backup{Keep: 1}
		e.Addresses.Set("edge-server-1", "127.0.0.9")

		require.EqualError(t, server.Backup(t.Context()),
			"no server has taken a snapshot of etcd (edge-server-1: connection refused); fix the cause, or set "+
				"lifecycle.backup.enabled to false")
	})
}
