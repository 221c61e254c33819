package tests

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/rehearsal"
)

// TestLostBootstrap loses the reply to the bootstrap, and ends the run before the cluster is up. The next update goes
// on by itself: it sees that the cluster was started, and starts no second one.
func TestLostBootstrap(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev", func(o *rehearsal.Options) { o.Latencies.APIServer = 2 * slow })
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Talos, Call: regexp.MustCompile("/Bootstrap$"), Kind: journal.LoseReply,
	})
	set(t, r.Stack, "lifecycle.readyTimeout", "1s")

	said := failUp(t, r.Stack)
	assert.Contains(t, said, "gave up after 1s, waiting for k3s-dev-control-1: ", "the message says where the node stood")

	requests := len(calls(r, "/Bootstrap"))
	assert.GreaterOrEqual(t, requests, 1)

	time.Sleep(slow) // long enough for etcd to run, which is what proves the bootstrap
	set(t, r.Stack, "lifecycle.readyTimeout", "1m")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	assert.Len(t, calls(r, "/Bootstrap"), requests, "no second bootstrap")
	assert.Len(t, calls(r, "/clone"), 3, "no machine was made twice")
	requireNoChange(t, r.Stack)
	destroy(t, r.Stack)
}
