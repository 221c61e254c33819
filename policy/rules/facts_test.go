package rules

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// TestReadFacts holds what the rules learn from the configuration of a stack.
func TestReadFacts(t *testing.T) {
	t.Parallel()

	hosts := map[string]spec.Resources{"pve1": {VCPU: 30, MemoryMiB: 56 << 10}, "pve2": {VCPU: 8, MemoryMiB: 16 << 10}}

	for name, c := range map[string]struct {
		config map[string]string
		want   Facts
	}{
		"nothing is set, and it belongs to others": {nil, Facts{Environment: spec.EnvironmentProduction}},
		"others' with words of the same name": {
			map[string]string{
				"atlas:environment": "staging", "atlas:proxmox": "pve1", "atlas:cluster": "home",
				"atlas:pools": "[]",
			},
			Facts{Environment: spec.EnvironmentProduction},
		},
		"this project's is a lab": {map[string]string{"atlas:pools": "{}"}, Facts{Environment: spec.EnvironmentLab}},
		"as it says": {
			map[string]string{"atlas:pools": "{}", "atlas:environment": "production"},
			Facts{Environment: spec.EnvironmentProduction},
		},
		"the rules' own word is the last": {
			map[string]string{"atlas:environment": "production", "talos-proxmox-policy:environment": "lab"},
			Facts{Environment: spec.EnvironmentLab},
		},
		"the cluster, and what its hosts have for it": {
			map[string]string{
				"atlas:pools": "{}", "atlas:cluster": `{"name": "home", "ha": true}`,
				"atlas:placement": `{"reserve": {"vcpu": 2, "memoryMiB": 8192}}`,
				"atlas:proxmox": `{"endpoint": "https://pve.lan:8006", "hosts": [
					{"name": "pve1", "capacity": {"vcpu": 32, "memoryMiB": 65536}},
					{"name": "pve2", "capacity": {"vcpu": 8, "memoryMiB": 20480}, "reserve": {"memoryMiB": 4096}},
					{"name": "pve3"}]}`,
			},
			Facts{Environment: spec.EnvironmentLab, Cluster: "home", Room: hosts},
		},
		"settings": {
			map[string]string{"talos-proxmox-policy:rules": `{"verify-tls": {"except": []}}`},
			Facts{
				Environment: spec.EnvironmentProduction,
				Settings:    map[string]json.RawMessage{"verify-tls": json.RawMessage(`{"except": []}`)},
			},
		},
	} {
		f, err := ReadFacts("atlas", getter(c.config))
		require.NoError(t, err, name)

		if c.want.Room == nil {
			assert.Empty(t, f.Room, name)

			f.Room = nil
		}

		assert.Equal(t, c.want, f, name)
	}

	_, err := ReadFacts("atlas", getter(map[string]string{"talos-proxmox-policy:environment": "prod"}))
	require.EqualError(t, err,
		"talos-proxmox-policy:environment: must be lab or production (given: prod); change the value")

	_, err = ReadFacts("atlas", getter(map[string]string{"talos-proxmox-policy:rules": "verify-tls"}))
	require.ErrorContains(t, err, "talos-proxmox-policy:rules: must be a block of settings by rule: ")
}

func getter(config map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		value, ok := config[key]

		return value, ok
	}
}
