package k3sconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDatastore: a cluster begins once.
func TestDatastore(t *testing.T) {
	t.Parallel()

	const (
		begin = "cluster-init: true\n"
		lost  = "the cluster has no server left, so the data of etcd is lost: s1 would start an empty cluster; " +
			"restore a snapshot of K3s on it (stacks/docs/k3s.md, Restore a snapshot); or, to start an empty " +
			"cluster, set lifecycle.acceptEmptyCluster to edge; then run 'pulumi up' again"
	)

	for name, c := range map[string]struct {
		is                      Datastore
		settings, waiting, fail string
	}{
		"a new cluster": {settings: begin},
		"another that answers": {
			is:       Datastore{Answering: "https://s2:6443", Existed: true},
			settings: "server: https://s2:6443\n",
		},
		"an answer, whatever is meant": {
			is:       Datastore{Answering: "https://s2:6443", AcceptEmpty: true},
			settings: "server: https://s2:6443\n",
		},
		"the state knows it":     {is: Datastore{Existed: true}, fail: lost},
		"an agent knows it":      {is: Datastore{Agents: []string{"a1"}}, fail: lost},
		"an empty one is wanted": {is: Datastore{Existed: true, Agents: []string{"a1"}, AcceptEmpty: true}, settings: begin},
		"another that is silent": {
			is:      Datastore{Servers: []string{"s2", "s3"}, AcceptEmpty: true},
			waiting: "s2, s3 to answer: K3s has run there, and s1 joins that cluster",
		},
		"another that nothing is known of": {
			is:      Datastore{Unknown: []string{"s2 (it is off)"}, AcceptEmpty: true},
			waiting: "the guest agent to report whether K3s has run on s2 (it is off)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c.is.Cluster, c.is.Server = "edge", "s1"
			settings, waiting, err := c.is.Settings()

			assert.Equal(t, c.settings, settings)
			assert.Equal(t, c.waiting, waiting)

			if c.fail == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.fail)
			}
		})
	}
}
