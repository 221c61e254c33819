package components

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/components/kubeapi"
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
