package tests

import (
	"context"
	"math"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// pinned runs a pod on a node, which has to leave it when it is drained, and makes it again there.
func pinned(t *testing.T, api kubernetes.Interface, node string) {
	t.Helper()

	labels := map[string]string{"app": "on-" + node}

	_, err := api.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"kubernetes.io/hostname": node},
				Tolerations: []corev1.Toleration{{
					Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
					Key: "node-role.kubernetes.io/control-plane",
				}},
				Containers: []corev1.Container{{Name: "web", Image: "registry.k8s.io/pause:3.10"}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	requirePinned(t, api, node)
}

// requirePinned waits until the pod of a node runs there.
func requirePinned(t *testing.T, api kubernetes.Interface, node string) {
	t.Helper()

	require.Eventually(t, func() bool {
		d, err := api.AppsV1().Deployments("default").Get(context.Background(), "on-"+node, metav1.GetOptions{})

		return err == nil && d.Status.ReadyReplicas == 1
	}, wait, 50*time.Millisecond, "%s takes no pods", node)
}

// whileDraining does something while a node is drained of the pod that is pinned to it.
func whileDraining(r *rehearsal.Rehearsal, node string, do func()) {
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Kubernetes, Call: regexp.MustCompile("/pods/on-" + node + "-[^/]+/eviction$"), Kind: journal.Interfere,
		Before: func(journal.Entry) { do() },
	})
}

// homeServers is a cluster of K3s with three servers, and an agent.
var homeServers = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: a@pve!b, hosts: [{ name: pve }], ssh: { username: root } }
  talos-proxmox:cluster: { name: home, kind: k3s, ha: true, versions: { k3s: v1.33.6+k3s1 } }
  talos-proxmox:image:
    source: cloudImage
    cloudImage:
      url: https://cloud-images.ubuntu.com/releases/noble/release-20251113/ubuntu-24.04-server-cloudimg-amd64.img
      checksum: sha256:` + strings.Repeat("0", 64) + `
  talos-proxmox:network: { addressing: agent, cidr: 10.0.0.0/16 }
  talos-proxmox:lifecycle: { settleTimeout: 1s }
  talos-proxmox:pools:
    server: { role: controlplane, count: 3 }
    agent: { role: worker, count: 1 }
`

// TestCheckedAgainAfterTheDrain lets a member of etcd fail while a control plane is drained: the control plane is not
// taken down, whatever for, takes pods again, and the next update goes on.
func TestCheckedAgainAfterTheDrain(t *testing.T) {
	t.Parallel()

	const node, other = "home-control-1", "home-control-2"

	r := rehearse(t, stackFile(t, strings.NewReplacer(
		"drainTimeout: 3s", "drainTimeout: 30s, settleTimeout: 1s", "talos: v1.12.4", "talos: v1.12.2",
		"source: template, template: { control: talos-v1.12.4-base, worker: talos-v1.12.4-base }",
		"source: factory, platform: nocloud",
	).Replace(threeAndOne)))
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)
	pinned(t, api, node)

	for name, change := range map[string]func(){
		"reboot":        func() { set(t, r.Stack, "cluster.patches[0]", `machine: { env: { NO_PROXY: "secret.example" } }`) },
		"restart of VM": func() { set(t, r.Stack, "defaults.memoryMiB", "6144") },
		"upgrade":       func() { set(t, r.Stack, "cluster.versions.talos", "v1.12.4") },
		"replacement":   func() { set(t, r.Stack, "lifecycle.replace[0]", node) },
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			down := func() bool {
				for _, o := range r.Talos.Outages(began) {
					if o.Node == node {
						return true
					}
				}

				return false
			}

			change()
			whileDraining(r, node, func() { r.Talos.Break(other, talos.EtcdCutOff) })

			said := failUp(t, r.Stack)
			assert.Contains(t, said, "it was drained, and is uncordoned again because the cluster has changed in "+
				"the meantime: ")
			assert.Contains(t, said, "the etcd member "+other+" is not healthy")
			assert.False(t, down(), "%v", r.Talos.Outages(began))

			// What is cut off may hold the address of the API.
			r.Talos.Mend(other, talos.EtcdCutOff)
			requirePinned(t, api, node)
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))
			requireVoters(t, r, 3)
			assert.True(t, down(), "the next update goes on")
			requirePinned(t, api, node)
		})
	}
}

// TestMemberRestartsDuringTheDrain: a member of etcd that restarts while another control plane is drained is waited
// for. The update neither fails, nor takes the control plane down before.
func TestMemberRestartsDuringTheDrain(t *testing.T) {
	t.Parallel()

	const node, other = "home-control-1", "home-control-2"

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "drainTimeout: 3s", "drainTimeout: 30s", 1)), onRealKubernetes)
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)
	pinned(t, api, node)

	began := time.Now()

	var crashed atomic.Bool

	set(t, r.Stack, "defaults.memoryMiB", "6144")
	whileDraining(r, node, func() {
		r.Talos.Break(other, talos.EtcdCrashes)
		crashed.Store(true)
	})
	up(t, r.Stack)
	assert.True(t, crashed.Load())
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)
	requireOrderly(t, r, began, 1)
	requireNoChange(t, r.Stack)
}

// TestCheckedAgainAfterTheDrainK3s: a server that is drained is not taken down when another fails meanwhile.
func TestCheckedAgainAfterTheDrainK3s(t *testing.T) {
	t.Parallel()

	const node, other = "home-server-1", "home-server-2"

	r := rehearse(t, stackFile(t, homeServers))
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	pinned(t, api, node)

	caller := world.Caller{ID: r.Lab.Credentials().TokenID}

	for name, change := range map[string]func(){
		"upgrade":       func() { set(t, r.Stack, "cluster.versions.k3s", "v1.34.2+k3s1") },
		"restart of VM": func() { set(t, r.Stack, "defaults.memoryMiB", "6144") },
	} {
		t.Run(name, func(t *testing.T) {
			change()
			whileDraining(r, node, func() {
				_, err := r.Lab.World().Stop(caller, "pve", vmids(r)[other])
				assert.NoError(t, err)
			})

			before := vmConfig(t, r, node)
			said := failUp(t, r.Stack)
			assert.Contains(t, said, "it was drained, and is uncordoned again because the cluster has changed in "+
				"the meantime: ")
			requirePinned(t, api, node)
			assert.Equal(t, before, vmConfig(t, r, node))

			_, err := r.Lab.World().Start(caller, "pve", vmids(r)[other])
			require.NoError(t, err)
			require.NoError(t, r.WaitReady(t.Context(), wait))
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))
			requirePinned(t, api, node)
		})
	}
}

// TestAnotherAPIServer: a drain goes on by another API server when the one that it began with answers with errors,
// and ends.
func TestAnotherAPIServer(t *testing.T) {
	t.Parallel()

	const node, first = "home-worker-1", "home-control-1"

	r := rehearse(t, stackFile(t, threeAndOne))
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	pinned(t, api, node)

	for patch, kind := range map[string]journal.Kind{
		`machine: { env: { NO_PROXY: "refuse.example" } }`: journal.Refuse,
		`machine: { env: { NO_PROXY: "reset.example" } }`:  journal.Reset,
	} {
		t.Run(string(kind), func(t *testing.T) {
			r.Lab.Journal().Plant(journal.Fault{
				Face: journal.Kubernetes, Subject: first, Call: regexp.MustCompile("/eviction$"), Kind: kind, Times: math.MaxInt,
				Message: "etcdserver: request timed out",
			})

			set(t, r.Stack, "pools.worker.patches[0]", patch)
			up(t, r.Stack)
			r.Lab.Journal().Clear()
			requirePinned(t, api, node)
		})
	}

	unset(t, r.Stack, "pools.worker.patches")
}
