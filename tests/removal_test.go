package tests

import (
	"encoding/json"
	"encoding/pem"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/components/impact"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// threeAndOne is a cluster of three control planes and a worker, behind an address that moves with the control plane.
const threeAndOne = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: home, versions: { talos: v1.12.4, kubernetes: v1.34.2 }, endpoint: { mode: vip, address: 192.168.10.9 } }
  talos-proxmox:image: { source: template, template: { control: talos-v1.12.4-base, worker: talos-v1.12.4-base } }
  talos-proxmox:network: { cidr: 192.168.10.0/24, gateway: 192.168.10.1 }
  talos-proxmox:lifecycle: { drainTimeout: 3s }
  talos-proxmox:pools:
    control: { role: controlplane, count: 3, addresses: 192.168.10.11-19 }
    worker: { role: worker, count: 1, addresses: 192.168.10.21-49 }
`

// requireVoters waits until etcd has so many members with a vote, all well, and holds that it was never below its
// quorum: by the word of its members, where they are released ones.
func requireVoters(t *testing.T, r *rehearsal.Rehearsal, want int) {
	t.Helper()

	require.Eventually(t, func() bool {
		all := r.Talos.Quorum(time.Time{})
		last := all[len(all)-1]

		return last.Voters == want && last.Healthy == want
	}, wait, 50*time.Millisecond, "%+v", r.Talos.Quorum(time.Time{}))

	lowest, _ := r.Talos.LowestQuorum(time.Time{})
	require.GreaterOrEqual(t, lowest.Margin(), 0, "%+v", lowest)
}

// kubernetesNodes are the names of the nodes that Kubernetes knows.
func kubernetesNodes(t *testing.T, api *kubernetes.Clientset) []string {
	t.Helper()

	list, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}

	return names
}

// failPreview runs a preview that must fail, and returns what was printed.
func failPreview(t *testing.T, s auto.Stack) string {
	t.Helper()

	out := newOutput(t)
	_, err := s.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
	require.Error(t, err)

	return out.String()
}

// TestControlPlanesComeAndGo grows a cluster and makes it smaller, replaces a control plane, and asks for what would
// break it: etcd has its quorum at every instant.
func TestControlPlanesComeAndGo(t *testing.T) {
	t.Parallel()

	// With all companions that a VM can have, and whatever restarts a VM that switches itself off.
	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "control: {", "control: { haGroup: racks,", 1)+
		"  talos-proxmox:firewall: { enabled: true }\n"), onRealKubernetes)
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	three := vmids(r)

	t.Run("3 to 5 to 3", func(t *testing.T) {
		set(t, r.Stack, "pools.control.count", "5")
		up(t, r.Stack)

		// No wait: those that join are waited for before others leave.
		set(t, r.Stack, "pools.control.count", "3")
		up(t, r.Stack)
		requireVoters(t, r, 3)

		assert.Equal(t, three, vmids(r))
		assert.Equal(t, []string{"home-control-1", "home-control-2", "home-control-3", "home-worker-1"},
			kubernetesNodes(t, api))
		requireSettled(t, r.Stack)

		for vmid, gone := range map[string]string{"404": "home-control-4", "405": "home-control-5"} {
			var steps []string

			for _, e := range r.Lab.Journal().Entries() {
				mine := e.Subject == gone && regexp.MustCompile(`Forfeit|LeaveCluster|Reset$`).MatchString(e.Call)
				if mine || regexp.MustCompile(`^DELETE /(api/v1/nodes/`+gone+`|.*/qemu/`+vmid+`/firewall/rules/0|.*/qemu/`+vmid+
					`|cluster/ha/resources/vm:`+vmid+`)$`).
					MatchString(e.Call) {
					steps = append(steps, strings.TrimPrefix(e.Call, "/machine.MachineService/"))
				}
			}

			// A Node that its kubelet changes at that moment is read and deleted again.
			steps = slices.Compact(steps)

			assert.Equal(t, []string{
				"EtcdForfeitLeadership", "EtcdLeaveCluster", "DELETE /api/v1/nodes/" + gone, "Reset",
			}, steps[:4])
			assert.ElementsMatch(t, []string{
				"DELETE /cluster/ha/resources/vm:" + vmid,
				"DELETE /nodes/pve/qemu/" + vmid + "/firewall/rules/0",
			}, steps[4:len(steps)-1])
			assert.Equal(t, "DELETE /nodes/pve/qemu/"+vmid, steps[len(steps)-1])
		}
	})

	t.Run("3 to 1", func(t *testing.T) {
		before := r.Lab.World().Snapshot()

		set(t, r.Stack, "pools.control.count", "1")

		const refused = "pools: 1 of 3 control planes would stay, and etcd needs 2 of them: nothing is removed " +
			"(given: without home-control-2, home-control-3); remove at most 1 at a time"

		assert.Contains(t, failPreview(t, r.Stack), refused)
		assert.Contains(t, failUp(t, r.Stack), refused)
		assert.Equal(t, before, r.Lab.World().Snapshot())
		requireVoters(t, r, 3)
		set(t, r.Stack, "pools.control.count", "3")
	})

	t.Run("replaced, once", func(t *testing.T) {
		uuid := func() any { return vmConfig(t, r, "home-control-2")["smbios1"] }
		was, mac := uuid(), vmConfig(t, r, "home-control-2")["net0"]

		set(t, r.Stack, "lifecycle.replace[0]", "home-control-2")
		up(t, r.Stack)
		requireVoters(t, r, 3)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		made := uuid()
		assert.NotEqual(t, was, made)
		assert.Equal(t, three, vmids(r))
		assert.Equal(t, mac, vmConfig(t, r, "home-control-2")["net0"])
		assert.Contains(t, kubernetesNodes(t, api), "home-control-2")
		requireNoChange(t, r.Stack)

		unset(t, r.Stack, "lifecycle.replace")
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
		assert.Equal(t, made, uuid())

		set(t, r.Stack, "lifecycle.replace[0]", "home-control-3")
		set(t, r.Stack, "lifecycle.replace[1]", "home-control-2")
		up(t, r.Stack)
		requireVoters(t, r, 3)
		assert.NotEqual(t, made, uuid(), "named again is made again, after the other")
		requireNoChange(t, r.Stack)
	})

	t.Run("destroyed in two steps", func(t *testing.T) {
		before := r.Lab.World().Snapshot()
		out := newOutput(t)

		_, err := r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
		require.Error(t, err)
		assert.Contains(t, out.String(), "has delete hooks registered, but the program is not running")

		unset(t, r.Stack, "lifecycle.replace")
		up(t, r.Stack)

		_, err = r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
			optdestroy.ErrorProgressStreams(out))
		require.Error(t, err)
		assert.Contains(t, out.String(), "home-worker-1 is in the configuration, so its machine is not removed; to "+
			"recreate it, name it in lifecycle.replace; "+
			"to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', "+
			"then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'")
		assert.Equal(t, before, r.Lab.World().Snapshot())
		requireVoters(t, r, 3)

		set(t, r.Stack, "lifecycle.teardown", "true")
		up(t, r.Stack)

		_, err = r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(out))
		require.NoError(t, err)
		assert.Empty(t, r.Leftovers())
	})
}

// TestDeadNodes: who does not answer is removed or replaced when the operator says that it is dead, and not before.
func TestDeadNodes(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "count: 1", "count: 2", 1)))
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	_, err := r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", vmids(r)["home-control-2"])
	require.NoError(t, err)
	_, err = r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", vmids(r)["home-worker-2"])
	require.NoError(t, err)

	t.Run("unknown, in the table", func(t *testing.T) {
		set(t, r.Stack, "cluster.patches[0]", `machine: { sysctls: { vm.swappiness: "1" } }`)

		table := impactTable(t, r)
		assert.Equal(t, map[string]impact.Effect{
			"home-control-1": impact.EffectLive, "home-control-2": impact.EffectUnknown, "home-control-3": impact.EffectLive,
			"home-worker-1": impact.EffectLive, "home-worker-2": impact.EffectUnknown,
		}, effects(table))
		assert.Regexp(t, "^it does not answer: ", table["home-control-2"].Why)

		unset(t, r.Stack, "cluster.patches")
	})

	t.Run("a control plane that is replaced", func(t *testing.T) {
		set(t, r.Stack, "lifecycle.replace[0]", "home-control-2")

		said := failUp(t, r.Stack)
		assert.Contains(t, said, "home-control-2 is not removed: the etcd member home-control-2 is not healthy (")
		assert.Contains(t, said,
			"); repair it first, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again")
		assert.Contains(t, kubernetesNodes(t, api), "home-control-2")

		set(t, r.Stack, "lifecycle.forceRemove[0]", "home-control-2")
		up(t, r.Stack)
		requireVoters(t, r, 3)
		assert.Len(t, calls(r, "EtcdRemoveMemberByID"), 1)
	})

	t.Run("a worker that is replaced while another is to reboot", func(t *testing.T) {
		since := time.Now()

		set(t, r.Stack, "lifecycle.replace[0]", "home-worker-2")
		set(t, r.Stack, "lifecycle.forceRemove[0]", "home-worker-2")
		set(t, r.Stack, "pools.worker.patches[0]", "machine: { env: { a: b } }")
		up(t, r.Stack)

		assert.Contains(t, eventsOf(r, since)["home-worker-1"], talos.Rebooted)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		for _, list := range []string{"replace", "forceRemove"} {
			unset(t, r.Stack, "lifecycle."+list)
		}
	})

	t.Run("a worker that is removed", func(t *testing.T) {
		_, err = r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", vmids(r)["home-worker-2"])
		require.NoError(t, err)

		set(t, r.Stack, "pools.worker.count", "1")

		said := failUp(t, r.Stack)
		assert.Regexp(t,
			`home-worker-2 is not removed: it does not answer at \S+ \(gave up after 10s, waiting for home-worker-2 to answer \(.+\)\); `+
				`start it again, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again`, said)
		assert.Contains(t, kubernetesNodes(t, api), "home-worker-2")

		set(t, r.Stack, "lifecycle.forceRemove[0]", "home-worker-2")
		up(t, r.Stack)
		assert.NotContains(t, kubernetesNodes(t, api), "home-worker-2")
		assert.NotContains(t, vmids(r), "home-worker-2")
	})

	requireNoChange(t, r.Stack)
}

// TestTheLastControlPlane stays, whatever is asked for, and so does one that another needs.
func TestTheLastControlPlane(t *testing.T) {
	t.Parallel()

	r := rehearse(t, devWith(t))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	before := r.Lab.World().Snapshot()

	set(t, r.Stack, "lifecycle.replace[0]", "k3s-dev-control-1")
	set(t, r.Stack, "lifecycle.replace[1]", "k3s-dev-worker-1")

	const refused = "k3s-dev-control-1 is not removed: the last control plane cannot be removed: etcd would be " +
		"lost with it; add two control planes first, then replace or remove it; or, " +
		"to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', " +
		"then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'"

	assert.Contains(t, failPreview(t, r.Stack), refused)
	assert.Contains(t, failUp(t, r.Stack), refused)
	assert.Equal(t, before, r.Lab.World().Snapshot())
}

// hold runs a pod on a node that a disruption budget keeps there. Both have the same name.
func hold(t *testing.T, api *kubernetes.Clientset, name, node string) {
	t.Helper()

	labels := map[string]string{"app": name}

	_, err := api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"kubernetes.io/hostname": node},
				Containers:   []corev1.Container{{Name: name, Image: "registry.k8s.io/pause:3.10"}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	one := intstr.FromInt32(1)
	_, err = api.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one,
			Selector:     &metav1.LabelSelector{MatchLabels: labels},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		b, err := api.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), name, metav1.GetOptions{})

		return err == nil && b.Status.CurrentHealthy == 1
	}, wait, 50*time.Millisecond)
}

// deny has a webhook deny all evictions, until it is lifted.
func deny(t *testing.T, api *kubernetes.Clientset, why string) (lift func()) {
	t.Helper()

	const name = "freeze.example.com"

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if !assert.NoError(t, json.NewDecoder(r.Body).Decode(&review)) {
			return
		}

		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: why}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)

	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	all := api.AdmissionregistrationV1().ValidatingWebhookConfigurations()

	_, err := all.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"},
				},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	return func() { require.NoError(t, all.Delete(t.Context(), name, metav1.DeleteOptions{})) }
}

// TestDrainIsBounded: a disruption budget holds a worker, and then a webhook, until they do not.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.NewReplacer("count: 3", "count: 1", "count: 1",
		"count: 2").Replace(threeAndOne)), onRealKubernetes)
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	hold(t, api, "web", "home-worker-2")
	set(t, r.Stack, "pools.worker.count", "1")

	said := failUp(t, r.Stack)
	assert.Regexp(t,
		`home-worker-2 is not removed: home-worker-2 could not be drained within 3s: pod default/web-\S+ is blocked by the disruption budget web `+
			`\(1 healthy, 1 required\); make room for its pods elsewhere, or raise lifecycle.drainTimeout; then run 'pulumi up' again`, said)

	kept := func() {
		n, err := api.CoreV1().Nodes().Get(t.Context(), "home-worker-2", metav1.GetOptions{})
		require.NoError(t, err)
		assert.False(t, n.Spec.Unschedulable, "what is refused leaves the node as it was")
		assert.Contains(t, vmids(r), "home-worker-2")
	}

	kept()
	require.NoError(t, api.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))

	lift := deny(t, api, "the cluster is frozen")

	assert.Regexp(t, `home-worker-2 is not removed: home-worker-2 could not be drained within 3s: .*`+
		`pod default/web-\S+ is not evicted: admission webhook "freeze.example.com" denied the request: the cluster is frozen`,
		failUp(t, r.Stack))
	kept()

	lift()
	up(t, r.Stack)
	assert.Equal(t, []string{"home-control-1", "home-worker-1"}, kubernetesNodes(t, api))
	assert.NotContains(t, vmids(r), "home-worker-2")
	requireNoChange(t, r.Stack)
}

// TestRemovalIsContinued cuts the removal of a control plane off at each of its steps: the next update goes on from
// there.
func TestRemovalIsContinued(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne), onRealKubernetes)
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	const gone = "home-control-3"

	set(t, r.Stack, "pools.control.count", "2")

	plant := func(face journal.Face, call string, kind journal.Kind) {
		r.Lab.Journal().Plant(journal.Fault{Face: face, Call: regexp.MustCompile(call), Kind: kind})
	}

	// Cut off with the node cordoned and drained, its member in etcd.
	plant(journal.Talos, "EtcdLeaveCluster", journal.Refuse)
	assert.Contains(t, failUp(t, r.Stack), gone+" is not removed: "+gone+" does not leave etcd: ")
	requireVoters(t, r, 3)

	// The node has left etcd, though no other node was told; Kubernetes does not let it go.
	plant(journal.Talos, "EtcdLeaveCluster", journal.LoseReply)
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Kubernetes, Call: regexp.MustCompile("^DELETE /api/v1/nodes/"), Kind: journal.Refuse,
		Times: math.MaxInt,
	})

	said := failUp(t, r.Stack)
	assert.Contains(t, said, gone+" is not removed: could not delete its node from Kubernetes: ")
	assert.Contains(t, said, ". It has already left etcd: run 'pulumi up' again to complete its removal")
	r.Lab.Journal().Clear()
	requireVoters(t, r, 2)
	assert.Contains(t, kubernetesNodes(t, api), gone)
	assert.Contains(t, vmids(r), gone)

	// It forgets its node; what the node answers to the reset is lost.
	plant(journal.Talos, "/Reset$", journal.LoseReply)
	up(t, r.Stack)
	assert.NotContains(t, vmids(r), gone)
	requireVoters(t, r, 2)
	requireNoChange(t, r.Stack)
}
