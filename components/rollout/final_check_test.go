package rollout

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// system is one whose Kubernetes does not answer where there is none.
type system struct {
	kube *kubeapi.Client
	// members of etcd.
	members []string
}

func (system) Restart(plan.Node) Node { return nil }

func (system) PreviewRestart(context.Context, plan.Node) string { return "" }

func (s system) EtcdMembers(context.Context, *kubeapi.Client) ([]string, error) {
	return s.members, nil
}

func (s system) Kubernetes(context.Context) (*kubeapi.Client, error) {
	if s.kube == nil {
		return nil, errors.New("no Kubernetes API answers")
	}

	return s.kube, nil
}

// kubernetesWith is a Kubernetes with nodes: "cordoned" by this program, "theirs" by others.
func kubernetesWith(t *testing.T, nodes map[string]string) (*kubeapi.Client, func() []string) {
	t.Helper()

	api := fake.NewClientset()

	for name, state := range nodes {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{Unschedulable: state != "" && state != "lost"},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{BootID: "first"},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: map[bool]corev1.ConditionStatus{
					true:  "Unknown",
					false: "True",
				}[state == "lost"]}},
			},
		}
		if state == "cordoned" {
			n.Annotations = map[string]string{"talos-proxmox/cordoned": "true"}
		}

		_, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	kube := kubeapi.Of(api)

	return kube, func() []string {
		all, err := kube.Nodes(t.Context())
		require.NoError(t, err)

		var closed []string

		for _, n := range all {
			if n.Cordoned {
				closed = append(closed, n.Name)
			}
		}

		slices.Sort(closed)

		return closed
	}
}

// silentSystem is a cluster that answers no question in time.
type silentSystem struct{ System }

func (silentSystem) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	<-ctx.Done()

	return nil, ctx.Err()
}

// TestFinalCheck: what an earlier run has left cordoned takes pods again, and nothing else does.
func TestFinalCheck(t *testing.T) {
	p := &plan.Plan{
		ReadyTimeout: time.Millisecond, SettleTimeout: time.Minute,
		Pools: []plan.PlannedPool{{Role: spec.RoleWorker, Nodes: []plan.Node{{Name: "a"}, {Name: "b"}}}},
	}

	of := func(dry bool, kube *kubeapi.Client) FinalCheck {
		return FinalCheck{Scope{
			Program: Program{DryRun: dry, Progress: silent, Warn: silent}, Plan: p, Limiter: NewLimiter(1),
		}, system{kube: kube}}
	}

	t.Run("cordoned nodes", func(t *testing.T) {
		kube, closed := kubernetesWith(t, map[string]string{"a": "cordoned", "b": "theirs", "stranger": "cordoned"})
		require.NoError(t, of(false, kube).Run(t.Context()))
		assert.Equal(t, []string{"b", "stranger"}, closed())

		failed := of(false, nil)
		require.NoError(t, failed.Run(t.Context()), "a cluster that does not answer stops nothing")
	})

	t.Run("a cluster that does not answer in time", func(t *testing.T) {
		var warned string

		late := of(false, nil)
		late.System = silentSystem{}
		late.Warn = func(text string) { warned = text }
		late.Plan = &plan.Plan{SettleTimeout: time.Millisecond, Pools: p.Pools}
		require.NoError(t, late.Run(t.Context()))
		assert.Equal(t, "could not determine whether an earlier run has left a node cordoned, and whether labels "+
			"and taints are as configured: context deadline exceeded", warned)
	})

	t.Run("a node has failed", func(t *testing.T) {
		kube, closed := kubernetesWith(t, map[string]string{"a": "cordoned"})

		failed := of(false, kube)
		failed.Limiter.Fail("a")
		require.EqualError(t, failed.Run(t.Context()), "a failed: see the messages above; fix it, then run 'pulumi "+
			"up' again")
		assert.Equal(t, []string{"a"}, closed())
	})

	t.Run("a preview", func(t *testing.T) {
		kube, closed := kubernetesWith(t, map[string]string{"a": "cordoned"})
		require.NoError(t, of(true, kube).Run(t.Context()))
		assert.Equal(t, []string{"a"}, closed(), "a preview changes nothing")
	})
}

// TestFinalCheckOfMissingNodes: nodes that are not in Kubernetes or etcd although they were there when the run began
// are pointed out, each once.
func TestFinalCheckOfMissingNodes(t *testing.T) {
	kube, _ := kubernetesWith(t, map[string]string{"c-1": "", "c-2": "", "c-3": ""})

	var warned []string

	p := &plan.Plan{
		ReadyTimeout: time.Millisecond, SettleTimeout: time.Minute, ForceRemove: []string{"dead"},
		Pools: []plan.PlannedPool{{}},
	}
	inventory := vms{}

	for i, name := range []string{"c-1", "c-2", "c-3", "lost", "dead", "joining", "new"} {
		n := plan.Node{Name: name, VMID: i + 1, Role: spec.RoleWorker}
		if name[0] == 'c' {
			n.Role = spec.RoleControlPlane
		}

		p.Pools[0].Nodes = append(p.Pools[0].Nodes, n)
		inventory[n.VMID] = name != "new"
	}

	check := FinalCheck{Scope{
		Program: Program{Progress: silent, Warn: func(text string) { warned = append(warned, text) }}, Plan: p,
		Limiter: NewLimiter(1), Inventory: inventory,
	}, system{kube: kube, members: []string{"c-1", "c-2"}}}
	check.Limiter.AddJoining("joining")

	require.NoError(t, check.Run(t.Context()))
	assert.Equal(t, []string{
		"c-3 is in Kubernetes, but not a member of etcd, which can lose fewer members than planned. To recreate it, name " +
			"it in lifecycle.replace, then run 'pulumi up' again",
		"lost is not in Kubernetes, so it runs no pods, and its labels and taints are not set. Bring it back, or, to " +
			"recreate it, name it in lifecycle.replace, and also in lifecycle.forceRemove if it does not answer; then run " +
			"'pulumi up' again",
	}, warned)
}

// TestFinalCheckOfVersions: a node whose upgrade was interrupted and reverted is pointed out.
func TestFinalCheckOfVersions(t *testing.T) {
	talos := plan.Plan{Talos: "v1.12.4", Kubernetes: "v1.34.2"}
	k3s := plan.Plan{K3s: &plan.PlannedK3s{Version: "v1.34.2+k3s1"}}

	for name, c := range map[string]struct {
		plan            plan.Plan
		system, kubelet string
		want            string
	}{
		"Talos as configured": {talos, "Talos (v1.12.4)", "v1.34.2", ""},
		"nothing reported":    {talos, "", "", ""},
		"later Talos": {
			talos, "Talos (v1.13.1)", "v1.34.2",
			"a runs Talos v1.13.1, and cluster.versions.talos is v1.12.4.",
		},
		"later Kubernetes": {
			talos, "Talos (v1.12.4)", "v1.35.0",
			"a runs Kubernetes v1.35.0, and cluster.versions.kubernetes is v1.34.2.",
		},
		"K3s as configured": {k3s, "Ubuntu 24.04.1 LTS", "v1.34.2+k3s1", ""},
		"later K3s": {
			k3s, "Ubuntu 24.04.1 LTS", "v1.35.0+k3s1",
			"a runs K3s v1.35.0+k3s1, and cluster.versions.k3s is v1.34.2+k3s1.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var warned []string

			c.plan.Pools = []plan.PlannedPool{{Nodes: []plan.Node{{Name: "a"}}}}
			check := FinalCheck{Scope: Scope{
				Program: Program{Warn: func(text string) { warned = append(warned, text) }}, Plan: &c.plan,
				Limiter: NewLimiter(1),
			}}
			nodes := []kubeapi.Node{{Name: "a", System: c.system, Kubelet: c.kubelet}, {Name: "stranger", Kubelet: "v1.1.1"}}
			check.warnOfVersions(nodes)

			if c.want == "" {
				assert.Empty(t, warned)

				return
			}

			require.Len(t, warned, 1)
			assert.Contains(t, warned[0], c.want)
			assert.Contains(t, warned[0], "an upgrade of it was interrupted and then reverted")

			warned = nil
			c.plan.Apply = spec.ApplyStaged
			check.warnOfVersions(nodes)
			assert.Empty(t, warned, "what is staged runs after the next reboot")
		})
	}
}
