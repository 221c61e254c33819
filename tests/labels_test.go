package tests

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/components/plan"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
	"talos-proxmox/tests/upstream"
)

// TestLabels: nodes have the labels and taints of their pools, those included that Kubernetes refuses from their own
// credentials, while they run, too; and keep those of others.
func TestLabels(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		stack, worker string
		pool, control string // of the control planes, and the first of them
	}{
		"talos": {
			pair{"template", "metal", "", "reserved"}.stack(), restartedWorker, "control", "pair-control-1",
		},
		"k3s": {`config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: a@pve!b, hosts: [{ name: pve1 }], ssh: { username: root } }
  talos-proxmox:cluster: { name: edge, kind: k3s, versions: { k3s: v1.34.2+k3s1 } }
  talos-proxmox:image:
    source: cloudImage
    cloudImage:
      url: https://cloud-images.ubuntu.com/releases/noble/release-20251113/ubuntu-24.04-server-cloudimg-amd64.img
      checksum: sha256:` + strings.Repeat("0", 64) + `
  talos-proxmox:network: { addressing: agent, cidr: 10.0.0.0/16 }
  talos-proxmox:pools:
    server: { role: controlplane, count: 1 }
    worker: { role: worker, count: 1 }
`, "edge-worker-1", "server", "edge-server-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const (
				role       = `pools.worker.labels["node-role.kubernetes.io/worker"]`
				tier       = "pools.worker.labels.tier"
				taint      = "pools.worker.taints.dedicated"
				annotation = "pools.worker.annotations.rack"
			)

			r := rehearse(t, stackFile(t, c.stack), onRealKubernetes)
			set(t, r.Stack, "pools."+c.pool+".labels.rack", "a")
			set(t, r.Stack, "pools."+c.pool+".taints.dedicated", "control:PreferNoSchedule")
			set(t, r.Stack, "cluster.region", "lan")
			set(t, r.Stack, tier, "")
			set(t, r.Stack, role, "")
			set(t, r.Stack, "pools.worker.taints.spot", "NoSchedule")
			set(t, r.Stack, taint, "db:NoSchedule")
			set(t, r.Stack, annotation, "a")

			api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
			require.NoError(t, r.WaitReady(t.Context(), wait))

			get := func() *corev1.Node {
				n, err := api.CoreV1().Nodes().Get(t.Context(), c.worker, metav1.GetOptions{})
				require.NoError(t, err)

				// A controller of Kubernetes gives them to each node some time.
				maps.DeleteFunc(n.Labels, func(key, _ string) bool { return strings.HasPrefix(key, "beta.kubernetes.io/") })

				return n
			}
			of := func(effect corev1.TaintEffect) corev1.Taint {
				return corev1.Taint{Key: "dedicated", Value: "db", Effect: effect}
			}
			theirs := corev1.Taint{Key: "theirs", Value: "x", Effect: corev1.TaintEffectPreferNoSchedule}
			spot := corev1.Taint{Key: "spot", Effect: corev1.TaintEffectNoSchedule}

			made := get()
			assert.Equal(t, "lan", made.Labels[corev1.LabelTopologyRegion])
			assert.Equal(t, r.Plan.PoolOf(plan.Node{Pool: "worker"}).Nodes[0].Host, made.Labels[corev1.LabelTopologyZone])

			if name == "talos" { // K3s has IDs of its own
				assert.Equal(t, "proxmox://lan/501", made.Spec.ProviderID)
			}

			control, err := api.CoreV1().Nodes().Get(t.Context(), c.control, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "a", control.Labels["rack"])
			assert.Contains(t, control.Spec.Taints,
				corev1.Taint{Key: "dedicated", Value: "control", Effect: corev1.TaintEffectPreferNoSchedule})

			base := maps.Clone(made.Labels)
			delete(base, "tier")
			delete(base, "node-role.kubernetes.io/worker")

			// Talos brings its own in line when it gets its configuration.
			has := func(labels map[string]string, taints ...corev1.Taint) {
				t.Helper()

				want := maps.Clone(base)
				maps.Copy(want, labels)
				assert.EventuallyWithT(t, func(t *assert.CollectT) {
					n := get()
					assert.Equal(t, want, n.Labels)
					assert.ElementsMatch(t, taints, n.Spec.Taints)
				}, time.Minute, 100*time.Millisecond)
			}

			annotated := func(want string) {
				t.Helper()
				assert.EventuallyWithT(t, func(t *assert.CollectT) {
					n := get()
					assert.Equal(t, want, n.Annotations["rack"])
					assert.Equal(t, "x", n.Annotations["theirs"])
				}, time.Minute, 100*time.Millisecond)
			}

			has(map[string]string{"tier": "", "node-role.kubernetes.io/worker": ""}, of(corev1.TaintEffectNoSchedule), spot)
			requireSettled(t, r.Stack)
			assert.Equal(t, "|db:NoSchedule,NoSchedule|lan", kubectl(t, r, "get", "node", c.worker, "-o", "jsonpath="+
				`{.metadata.labels.tier}|{.spec.taints[?(@.key=="dedicated")].value}:`+
				`{.spec.taints[?(@.key=="dedicated")].effect},{.spec.taints[?(@.key=="spot")].effect}|`+
				`{.metadata.labels.topology\.kubernetes\.io/region}`))

			_, err = api.CoreV1().Nodes().Patch(t.Context(), c.worker, types.StrategicMergePatchType,
				[]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/theirs":"x"},"annotations":{"theirs":"x"}},
				"spec":{"taints":[{"key":"theirs","value":"x","effect":"PreferNoSchedule"},{"key":"spot","effect":"NoSchedule"},
				{"key":"dedicated","value":"db","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
			require.NoError(t, err)

			base["node-role.kubernetes.io/theirs"] = "x"

			annotated("a")

			set(t, r.Stack, tier, "web")
			set(t, r.Stack, role, "a")
			set(t, r.Stack, taint, "db:NoExecute")
			set(t, r.Stack, annotation, "b")

			out := newOutput(t)
			_, err = r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
			require.NoError(t, err)
			assert.Contains(t, out.String(), c.worker+": live, for labels and taints")
			has(map[string]string{"tier": "", "node-role.kubernetes.io/worker": ""}, of(corev1.TaintEffectNoSchedule), spot,
				theirs)

			up(t, r.Stack)
			has(map[string]string{"tier": "web", "node-role.kubernetes.io/worker": "a"}, of(corev1.TaintEffectNoExecute), spot,
				theirs)
			annotated("b")
			requireNoChange(t, r.Stack)

			unset(t, r.Stack, "pools.worker.labels")
			unset(t, r.Stack, "pools.worker.taints")
			unset(t, r.Stack, "pools.worker.annotations")
			up(t, r.Stack)
			has(nil, theirs)
			annotated("")
			requireNoChange(t, r.Stack)

			assert.Equal(t, made.UID, get().UID)
			assert.Equal(t, made.Status.NodeInfo.BootID, get().Status.NodeInfo.BootID, "it runs on")
		})
	}
}

// kubectl runs the released kubectl with the kubeconfig of a stack.
func kubectl(t *testing.T, r *rehearsal.Rehearsal, args ...string) string {
	t.Helper()

	binary, err := upstream.Open(t.Context())
	require.NoError(t, err)

	outputs, err := r.Stack.Outputs(t.Context())
	require.NoError(t, err)

	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, []byte(outputs[contract.OutputKubeconfig].Value.(string)), 0o600))

	printed, err := binary.Run(t.Context(), append([]string{"kubectl", "--kubeconfig=" + config}, args...)...)
	require.NoError(t, err, string(printed))

	return string(printed)
}
