package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/rehearsal"
)

// TestSickNodesLeave removes nodes that answer and cannot leave in order. Without lifecycle.forceRemove the message
// says which step has failed and that there is this way; with it one update removes them, and says what it did
// without.
func TestSickNodesLeave(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.NewReplacer(
		"control: { role: controlplane, count: 3", "control: { role: controlplane, count: 5", "worker, count: 1",
		"worker, count: 4",
		"drainTimeout: 3s", "drainTimeout: 3s, settleTimeout: 2s",
	).Replace(threeAndOne)), onSimulatedKubernetes)
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 5)

	finalizer := func(finalizers string) {
		pods, err := api.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=on-home-worker-4"})
		require.NoError(t, err)
		require.NotEmpty(t, pods.Items)

		for _, p := range pods.Items {
			p.Finalizers = []string{finalizers}
			_, err = api.CoreV1().Pods("default").Update(t.Context(), &p, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	}

	for _, c := range []struct {
		name, node, key, value, fails, call string
		ail                                 func()
	}{
		{
			name: "a pod with a finalizer", node: "home-worker-4", key: "pools.worker.count", value: "3",
			ail:   func() { pinned(t, api, "home-worker-4"); finalizer("example.com/never") },
			fails: "home-worker-4 is not removed: home-worker-4 could not be drained within 3s: ",
			call:  "DELETE /api/v1/nodes/home-worker-4",
		},
		{
			name: "an etcd whose log is corrupt", node: "home-control-5", key: "pools.control.count", value: "4",
			ail:   func() { r.Talos.Break("home-control-5", talos.EtcdCorrupt) },
			fails: "home-control-5 is not removed: the etcd member home-control-5 is not healthy (",
			call:  "/EtcdRemoveMemberByID",
		},
		{
			name: "an etcd that is out of space", node: "home-control-4", key: "pools.control.count", value: "3",
			ail:   func() { r.Talos.Break("home-control-4", talos.EtcdNoSpace) },
			fails: "home-control-4 is not removed: the etcd member home-control-4 is not healthy (", call: "/EtcdAlarmDisarm",
		},
		{
			name: "a kubelet that is dead", node: "home-worker-3", key: "lifecycle.replace[0]", value: "home-worker-3",
			ail: func() {
				pinned(t, api, "home-worker-3")
				r.Talos.Break("home-worker-3", talos.KubeletDies)
				r.Talos.Mend("home-worker-3", talos.KubeletDies) // in the next boot
			},
			fails: "home-worker-3 is not removed: home-worker-3 could not be drained within 3s: ",
			call:  "DELETE /api/v1/nodes/home-worker-3",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.ail()
			set(t, r.Stack, c.key, c.value)

			uuid := vmConfig(t, r, c.node)["smbios1"]

			said := failUp(t, r.Stack)
			assert.Contains(t, said, c.fails)
			assert.Contains(t, said, "name it in lifecycle.forceRemove")

			if strings.Contains(c.fails, "drained") {
				assert.Regexp(t, `pod default/on-`+c.node+`\S+ has not ended yet`, said)
			}

			assert.Contains(t, vmids(r), c.node)
			assert.Contains(t, kubernetesNodes(t, api), c.node)

			set(t, r.Stack, "lifecycle.forceRemove[0]", c.node)

			out := newOutput(t)
			_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
			require.NoError(t, err)
			assert.Len(t, calls(r, c.call), 1)

			if c.value == c.node {
				assert.Contains(t, out.String(), ": its pods are not evicted, because it is named in "+
					"lifecycle.forceRemove")
				assert.NotEqual(t, uuid, vmConfig(t, r, c.node)["smbios1"])

				return
			}

			assert.NotContains(t, kubernetesNodes(t, api), c.node)
			assert.NotContains(t, vmids(r), c.node)
		})
	}

	requireVoters(t, r, 3)

	// etcd takes writes again.
	pinned(t, api, "home-worker-1")
	requireNoChange(t, r.Stack)
}

// TestRemovalAfterAYear: the credentials that nodes were configured with have expired. A stack that nothing has been
// done with since then can still remove and replace nodes: it does so with those that it has renewed.
func TestRemovalAfterAYear(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "worker, count: 1", "worker, count: 2", 1)))
	young := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	grow(t, r, young, -day)

	set(t, r.Stack, "pools.worker.count", "1")
	set(t, r.Stack, "pools.control.count", "2")
	up(t, r.Stack)

	assert.NotContains(t, vmids(r), "home-worker-2")
	assert.NotContains(t, vmids(r), "home-control-3")
	assert.Len(t, calls(r, "/EtcdLeaveCluster"), 1)
	assert.Len(t, calls(r, "/Reset"), 2, "they were asked to leave")
	requireVoters(t, r, 2)
}

// TestSickEtcd: no control plane is taken down while etcd takes no writes, or while a member that was added has no vote.
// The message says what is wrong, and the same update goes on once it is repaired.
func TestSickEtcd(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "drainTimeout: 3s",
		"drainTimeout: 3s, settleTimeout: 1s, nodeTimeout: 20s, upgrade: { timeout: 1m }", 1)), onSimulatedKubernetes)
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)
	set(t, r.Stack, "lifecycle.readyTimeout", "5s")

	t.Run("out of space", func(t *testing.T) {
		since := time.Now()
		r.Talos.Break("home-control-2", talos.EtcdNoSpace)
		set(t, r.Stack, "cluster.patches[0]", `machine: { env: { NO_PROXY: "a.example" } }`)

		said := failUp(t, r.Stack)
		assert.Contains(t, said, "etcd takes no writes, because home-control-2 is out of space (")
		assert.Contains(t, said, "then 'talosctl etcd alarm disarm' for one, and 'pulumi up' again")
		assert.Empty(t, r.Talos.Outages(since))

		for _, name := range []string{"home-control-1", "home-control-2", "home-control-3"} {
			_, err := dialNode(t, r, outputs, name).EtcdDefragment(t.Context())
			require.NoError(t, err)
		}

		_, err := dialNode(t, r, outputs, "home-control-1").EtcdAlarmDisarm(t.Context())
		require.NoError(t, err)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireVoters(t, r, 3)
	})

	t.Run("a learner that stays", func(t *testing.T) {
		since := time.Now()
		r.Talos.Break("home-control-4", talos.EtcdLags)
		set(t, r.Stack, "pools.control.count", "4")

		assert.Contains(t, failUp(t, r.Stack), "waiting for home-control-4: etcd (running, not healthy yet)")

		set(t, r.Stack, "cluster.patches[0]", `machine: { env: { NO_PROXY: "b.example" } }`)
		// Which node has its turn first is not decided: the others look at etcd, and the sick one is waited for.
		assert.Regexp(t, "home-control-4 (is joining etcd and has no vote yet; repair it first, then run 'pulumi up' again"+
			`|is not changed: gave up after 1m0s, waiting for home-control-4 to be up \(it is booting\))`, failUp(t, r.Stack))
		assert.Empty(t, r.Talos.Outages(since))
		r.Talos.Mend("home-control-4", talos.EtcdLags)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireVoters(t, r, 4)
		requireNoChange(t, r.Stack)
	})
}

// TestCorruptEtcd damages the data of released members, and leaves it to etcd to find that out: one does not start any
// more, another starts and has an alarm. No other control plane is taken away meanwhile, and what the messages say helps.
func TestCorruptEtcd(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "drainTimeout: 3s",
		"drainTimeout: 3s, settleTimeout: 2s", 1)), onRealKubernetes)
	outputs := upResult(t, r.Stack).Outputs
	api := kubernetesClient(t, outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	write := func() error {
		_, err := api.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "note-"}}, metav1.CreateOptions{})

		return err
	}
	keepsOthers := func(because string) {
		t.Helper()

		since := time.Now()

		set(t, r.Stack, "lifecycle.replace[0]", "home-control-1")
		assert.Contains(t, failUp(t, r.Stack), "home-control-1 is not removed: "+because)
		assert.Empty(t, r.Talos.Outages(since))
	}
	replace := func(node string) {
		t.Helper()

		uuid := vmConfig(t, r, node)["smbios1"]

		set(t, r.Stack, "lifecycle.replace[0]", node)
		set(t, r.Stack, "lifecycle.forceRemove[0]", node)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.NotEqual(t, uuid, vmConfig(t, r, node)["smbios1"])
		requireVoters(t, r, 3)
		require.NoError(t, write())
		requireNoChange(t, r.Stack)
		unset(t, r.Stack, "lifecycle.replace")
		unset(t, r.Stack, "lifecycle.forceRemove")
	}

	t.Run("a log that is damaged", func(t *testing.T) {
		node := dialNode(t, r, outputs, "home-control-2")

		r.Talos.Break("home-control-2", talos.EtcdCorrupt)
		require.Eventually(t, func() bool {
			info, err := node.ServiceInfo(t.Context(), "etcd")
			require.NoError(t, err)

			events := info[0].Service.GetEvents().GetEvents()

			return events[len(events)-1].GetMsg() ==
				`Error running Containerd(etcd), going to restart forever: task "etcd" failed: exit code 1`
		}, wait, time.Second)

		keepsOthers("the etcd member home-control-2 is not healthy (")
		replace("home-control-2")
		assert.Len(t, calls(r, "/EtcdRemoveMemberByID"), 1)
	})

	t.Run("other data than the others have", func(t *testing.T) {
		node := dialNode(t, r, outputs, "home-control-1")
		alarms := func() []*machineapi.EtcdMemberAlarm {
			reply, err := node.EtcdAlarmList(t.Context())
			require.NoError(t, err)

			return reply.GetMessages()[0].GetMemberAlarms()
		}

		r.Talos.Break("home-control-3", talos.EtcdInconsistent)
		require.Eventually(t, func() bool { return len(alarms()) > 0 }, wait, time.Second)
		assert.Equal(t, machineapi.EtcdMemberAlarm_CORRUPT, alarms()[0].GetAlarm())
		require.ErrorContains(t, write(), "etcdserver: corrupt cluster")

		const because = "etcd takes no writes, because the data of home-control-3 differ from those of the other members ("

		keepsOthers(because)
		unset(t, r.Stack, "lifecycle.replace")

		since := time.Now()

		set(t, r.Stack, "cluster.patches[0]", `machine: { env: { NO_PROXY: "a.example" } }`)

		said := failUp(t, r.Stack)
		assert.Contains(t, said, because)
		assert.Contains(t, said, "name home-control-3 in lifecycle.replace and lifecycle.forceRemove, and run 'pulumi up' again")
		assert.Empty(t, r.Talos.Outages(since))
		unset(t, r.Stack, "cluster.patches")

		replace("home-control-3")
		assert.Empty(t, alarms())
	})
}

// dialNode is the API of a node, for an administrator.
func dialNode(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap, name string) *client.Client {
	t.Helper()

	target, credentials := nodeOf(t, r, outputs, name)
	api, err := client.New(t.Context(), client.WithEndpoints(target.Address),
		client.WithConfigContext(&clientconfig.Context{
			CA: credentials.CA, Crt: credentials.Certificate, Key: credentials.Key,
		}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = api.Close() }) // the test is over

	return api
}
