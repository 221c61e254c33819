package patches

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWithoutSystem: Talos exempts kube-system itself, and a second time is refused.
func TestWithoutSystem(t *testing.T) {
	given := map[string]any{
		"defaults": map[string]any{"enforce": "restricted"},
		"exemptions": map[string]any{
			"namespaces": []any{"kube-system", "monitoring"}, "usernames": []any{},
		},
	}

	assert.Equal(t, map[string]any{
		"defaults":   map[string]any{"enforce": "restricted"},
		"exemptions": map[string]any{"namespaces": []any{"monitoring"}, "usernames": []any{}},
	}, withoutSystem(given))
	assert.Len(t, given["exemptions"].(map[string]any)["namespaces"], 2, "the plan stays as it is")

	without := map[string]any{"defaults": map[string]any{"enforce": "baseline"}}
	assert.Equal(t, without, withoutSystem(without))
}
