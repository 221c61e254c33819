package tests

import (
	"context"
	"crypto/tls"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/talosapi"
	"talos-proxmox/tests/rehearsal"
)

// TestLiveChangesOfControlPlanes: a change that control planes take without a reboot starts their API servers again.
// They do so one after the other, and one that does not come up with the change gets its former configuration back: the
// API of the cluster is never away.
func TestLiveChangesOfControlPlanes(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne), onRealKubernetes)
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	const patch = "cluster.patches[0]"

	t.Run("one after the other", func(t *testing.T) {
		away := apiServersAway(t, r)

		set(t, r.Stack, patch, `cluster: { apiServer: { certSANs: [a.example], extraArgs: { profiling: "false" } } }`)
		up(t, r.Stack)

		assert.Empty(t, away(), "two API servers were away at the same time")
		require.NoError(t, r.WaitReady(t.Context(), wait))
	})

	t.Run("one that does not come up", func(t *testing.T) {
		set(t, r.Stack, "lifecycle.readyTimeout", "15s")

		away := apiServersAway(t, r)

		set(t, r.Stack, patch, `cluster: { apiServer: { extraArgs: { no-such-flag: "1" } } }`)

		said := regexp.MustCompile(`home-control-\d does not serve with its changed configuration: gave up after 15s, waiting ` +
			`for home-control-\d: the Kubernetes API server \(connection refused\); its former configuration was restored, and no further node is changed; correct what has changed \(.*cluster\.apiServer\.extraArgs\.no-such-flag.*\), and run ` +
			`'pulumi up' again`)
		assert.Regexp(t, said, failUp(t, r.Stack))

		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.Empty(t, away())

		for _, n := range r.Plan.ControlPlanes() {
			target, credentials := nodeOf(t, r, outputs, n.Name)
			now, err := talosapi.Ask(t.Context(), target, credentials)
			require.NoError(t, err)
			assert.NotContains(t, now.Configuration.K8sAPIServerConfig().ExtraArgs(), "no-such-flag", n.Name)
		}
	})

	t.Run("one that Talos does not render", func(t *testing.T) {
		set(t, r.Stack, patch, `cluster: { apiServer: { extraArgs: { etcd-servers: "https://etcd.example:2379" } } }`)

		assert.Contains(t, failUp(t, r.Stack), patch+": Talos v1.12.4 does not start kube-apiserver with "+
			"cluster.apiServer.extraArgs.etcd-servers: it sets that argument itself")

		r.Talos.DenyArg("max-requests-inflight")
		set(t, r.Stack, patch, `cluster: { apiServer: { extraArgs: { max-requests-inflight: "500" } } }`)

		assert.Regexp(t, `home-control-\d does not serve with its changed configuration: gave up after 15s, waiting for `+
			`home-control-\d to start kube-apiserver with --max-requests-inflight, which Talos may not allow to be changed; its former configuration was restored`, failUp(t, r.Stack))

		unset(t, r.Stack, "lifecycle.readyTimeout") // one that comes up may need longer
		set(t, r.Stack, patch, `cluster: { apiServer: { extraArgs: { profiling: "true" } } }`)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)
	})
}

// apiServersAway looks at the API servers of all control planes until it is asked. It returns the times at which fewer
// than two of three answered.
func apiServersAway(t *testing.T, r *rehearsal.Rehearsal) (end func() []string) {
	t.Helper()

	ctx, stop := context.WithCancel(t.Context())
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // it is asked, not trusted
	}}

	var (
		found []string
		done  sync.WaitGroup
	)

	done.Go(func() {
		for ctx.Err() == nil {
			var away []string

			for _, n := range r.Plan.ControlPlanes() {
				response, err := client.Get("https://" + n.Address.String() + ":6443/readyz")
				if err == nil {
					_ = response.Body.Close()
				}

				// One that serves says that it does not know who asks.
				if err != nil || response.StatusCode >= http.StatusInternalServerError {
					away = append(away, n.Name)
				}
			}

			if len(away) > 1 {
				found = append(found, time.Now().Format(time.TimeOnly)+" "+strings.Join(away, ", "))
			}

			time.Sleep(50 * time.Millisecond)
		}
	})

	return func() []string {
		stop()
		done.Wait()

		return found
	}
}
