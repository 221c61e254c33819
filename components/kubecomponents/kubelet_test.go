package kubecomponents

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestKubeletFaults: fields that a kubelet's configuration does not have are named with the way to them, and those with
// values of another type.
func TestKubeletFaults(t *testing.T) {
	unknown, wrong := KubeletFaults(map[string]any{
		"maxPods":             200,
		"maxPod":              200,
		"podsPerCore":         "10",
		"shutdownGracePeriod": "5 minutes",
		"imageMaximumGCAge":   "24h",
		"evictionHard":        map[string]any{"memory.available": "5%"},
		"registerWithTaints":  []any{map[string]any{"key": "a", "effect": "NoSchedule", "vlaue": "b"}},
		"logging":             map[string]any{"verbosity": 2, "verbose": true},
		"featureGates":        map[string]any{"UserNamespacesSupport": true},
	})

	assert.Equal(t, []string{"logging.verbose", "maxPod", "registerWithTaints[0].vlaue"}, unknown)
	assert.Equal(t, []string{"podsPerCore", "shutdownGracePeriod"}, wrong)
}
