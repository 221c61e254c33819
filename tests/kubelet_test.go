package tests

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/tests/lab/talos"
)

// TestLiveChangesOfKubelets: a change that workers take without a reboot starts their kubelets again. The first worker
// of a pool takes it alone, and one whose kubelet does not come up gets its former configuration back: the others never
// see it.
func TestLiveChangesOfKubelets(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.NewReplacer("controlplane, count: 3", "controlplane, count: 1",
		"worker, count: 1", "worker, count: 3").Replace(threeAndOne)), onRealKubernetes)
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))

	var workers []string

	for _, n := range r.Plan.Nodes() {
		if n.Role == spec.RoleWorker {
			workers = append(workers, n.Name)
		}
	}

	require.Len(t, workers, 3)

	args := func(node string) map[string][]string {
		target, credentials := nodeOf(t, r, outputs, node)
		now, err := talosapi.Ask(t.Context(), target, credentials)
		require.NoError(t, err)

		return now.Configuration.K8sKubeletConfig().ExtraArgs()
	}

	const patch = "pools.worker.patches[0]"

	set(t, r.Stack, "lifecycle.readyTimeout", "15s")

	set(t, r.Stack, patch, `machine: { kubelet: { extraArgs: { cert-dir: "1" } } }`)
	assert.Contains(t, failUp(t, r.Stack), patch+": Talos v1.12.4 does not start kubelet with "+
		"machine.kubelet.extraArgs.cert-dir: it sets that argument itself")

	r.Talos.DenyArg("registry-burst")

	for _, c := range []struct{ arg, waiting string }{
		{"no-such-flag", `home-worker-\d: kubelet \(waiting\)`},
		{"registry-burst", `home-worker-\d to start kubelet with --registry-burst, which Talos may not allow to be changed`},
	} {
		t.Run(c.arg, func(t *testing.T) {
			began := time.Now()

			set(t, r.Stack, patch, `machine: { kubelet: { extraArgs: { `+c.arg+`: "1" } } }`)

			assert.Regexp(t, `home-worker-\d does not serve with its changed configuration: gave up after 15s, waiting for `+
				c.waiting+`; its former configuration was restored, and no further node is changed; correct what has changed `+
				`\(.*machine\.kubelet\.extraArgs\.`+c.arg+`.*\), and run 'pulumi up' again`, failUp(t, r.Stack))

			require.NoError(t, r.WaitReady(t.Context(), wait))

			changed := map[string]int{}

			for _, e := range r.Talos.Events(began) {
				if e.Kind == talos.Applied {
					changed[e.Node]++
				}
			}

			assert.Equal(t, []int{2}, slices.Collect(maps.Values(changed)), "one worker took it, and gave it back: %v", changed)

			for _, n := range workers {
				assert.NotContains(t, args(n), c.arg, n)
			}
		})
	}

	set(t, r.Stack, patch, `machine: { kubelet: { extraArgs: { v: "3" } } }`)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	for _, n := range workers {
		assert.Equal(t, []string{"3"}, args(n)["v"], n)
	}
}
