package k3s

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
)

// TestHealthOfNodes: a node is what Kubernetes says, and unknown without an answer.
func TestHealthOfNodes(t *testing.T) {
	nodes := []kubeapi.Node{
		{Name: "a", Ready: true},
		{Name: "b", Ready: true, Cordoned: true},
		{Name: "c", Cordoned: true},
	}

	for name, want := range map[string]string{
		"a": HealthReady, "b": HealthCordoned, "c": HealthNotReady,
		"d": HealthMissing,
	} {
		assert.Equal(t, want, healthOf(plan.Node{Name: name}, nodes, true), name)
		assert.Equal(t, HealthUnknown, healthOf(plan.Node{Name: name}, nil, false), name)
	}
}
