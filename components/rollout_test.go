package components

import (
	"strconv"
	"testing"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
)

func TestCanaries(t *testing.T) {
	c := &canaries{first: map[string]chan struct{}{}}

	done, err := c.enter(t.Context(), "a", time.Minute)
	require.NoError(t, err)

	_, err = c.enter(t.Context(), "a", time.Millisecond)
	require.EqualError(t, err, "gave up after 1ms, waiting for the first node of pool a")

	other, err := c.enter(t.Context(), "b", time.Millisecond)
	require.NoError(t, err, "each pool has its own")
	other()
	done()

	for range 2 {
		next, err := c.enter(t.Context(), "a", time.Millisecond)
		require.NoError(t, err)
		next()
	}
}

func TestWorkersAway(t *testing.T) {
	p := &plan.Plan{MaxUnavailable: 2, Pools: []plan.PlannedPool{
		{Role: plan.ControlPlane, Nodes: []plan.Node{{Name: "c", Role: plan.ControlPlane}}},
		{Role: plan.Worker, Nodes: []plan.Node{{Name: "w1", Role: plan.Worker}, {Name: "w2", Role: plan.Worker}, {Name: "w3", Role: plan.Worker}, {Name: "new", Role: plan.Worker}}},
	}}

	// Neither a control plane nor a stranger counts, nor a node that has not come yet, nor the node itself.
	nodes := []kubeapi.Node{{Name: "c"}, {Name: "stranger"}, {Name: "w1"}, {Name: "w2"}, {Name: "w3", Ready: true}}
	require.NoError(t, workersAway(p, nodes, "w1"))

	nodes[4].Ready = false
	require.EqualError(t, workersAway(p, nodes, "w1"), "2 of the workers may be away (lifecycle.upgrade.maxUnavailable), and not ready are w2, w3")
}

// TestUncarried: what is rebooted into has the versions of Kubernetes that run, and all else that is wanted.
func TestUncarried(t *testing.T) {
	of := func(version, swappiness string, role plan.Role) talosconfig.Provider {
		text := "version: v1alpha1\nmachine: { type: " + string(role) + ", kubelet: { image: ghcr.io/siderolabs/kubelet:" + version +
			" }, sysctls: { vm.swappiness: " + strconv.Quote(swappiness) + " } }\ncluster: { controlPlane: { endpoint: https://10.0.0.1:6443 }"

		if role == plan.ControlPlane {
			for key, image := range map[string]string{
				"apiServer": "kube-apiserver", "controllerManager": "kube-controller-manager", "scheduler": "kube-scheduler", "proxy": "kube-proxy",
			} {
				text += ", " + key + ": { image: registry.k8s.io/" + image + ":" + version + " }"
			}
		}

		c, err := machineconfig.Applied(text+" }\n", nil)
		require.NoError(t, err)

		return c
	}

	for _, role := range []plan.Role{plan.ControlPlane, plan.Worker} {
		kept, err := uncarried(changing{node: plan.Node{Role: role}, wanted: of("v1.34.2", "1", role)}, of("v1.33.6", "0", role))
		require.NoError(t, err)

		differ, err := lifecycle.Settings(of("v1.33.6", "1", role), kept)
		require.NoError(t, err)
		assert.Empty(t, differ)
	}
}

func TestRuns(t *testing.T) {
	of := func(image string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"image": image}},
		}}}}}
	}

	assert.True(t, runs(of("a:1"), "a:1"))
	assert.False(t, runs(of("a:1"), "a:2"))
	assert.False(t, runs(&unstructured.Unstructured{Object: map[string]any{"spec": "x"}}, "a:1"))
}
