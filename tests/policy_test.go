package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/rehearsal"
)

// TestPolicy runs the policy pack with the engine: started from its source by the language host, and compiled. In
// production it stops an update before anything is made; in a lab it only speaks.
func TestPolicy(t *testing.T) {
	t.Parallel()

	source, err := filepath.Abs(filepath.Join(root, "policy"))
	require.NoError(t, err)

	compiled := compilePolicies(t)

	const (
		control = "bridge-firewall: k3s-dev-control-1-vm.networkDevices[0].firewall: must be true on a public bridge " +
			"(given: bridge vmbr0); set it to true"
		worker = "bridge-firewall: k3s-dev-worker-1-vm.networkDevices[0].firewall: must be true on a public bridge " +
			"(given: bridge vmbr0); set it to true"
		protected = "control-plane-protection: k3s-dev-control-1-vm.protection: must be true for a control plane (given: " +
			"false); set it to true"
		room = "host-capacity: host pve: must have the virtual CPUs that its 2 guests are promised (given: 6 promised, 5 " +
			"to give); move a guest to another host, make guests smaller, or set the host's actual capacity"
	)

	// Whatever the environment's defaults are: the pack must find what was switched off.
	open := devWith(t, "  talos-proxmox:pools:\n", "  talos-proxmox:firewall: { enabled: false }\n  "+
		"talos-proxmox:defaults: { protection: false }\n  talos-proxmox:pools:\n")
	r := rehearse(t, open)

	t.Run("production is enforced", func(t *testing.T) {
		set(t, r.Stack, "environment", "production")

		found, err := previewWith(t, r.Stack, source)
		require.Error(t, err)
		assert.Equal(t, []string{"mandatory " + control, "mandatory " + worker, "mandatory " + protected}, found)

		found, err = upWith(t, r, compiled)
		require.Error(t, err)
		assert.Subset(t, []string{"mandatory " + control, "mandatory " + worker, "mandatory " + protected}, found)
		assert.NotEmpty(t, found)
		assert.Empty(t, r.Leftovers(), "nothing is made that breaks a rule")
	})

	t.Run("a lab is advised", func(t *testing.T) {
		set(t, r.Stack, "environment", "lab")

		found, err := upWith(t, r, compiled)
		require.NoError(t, err)
		assert.Equal(t, []string{"advisory " + control, "advisory " + worker, "advisory " + protected}, found)
		assert.Len(t, r.Nodes(), 2)
	})

	t.Run("settings of the stack and of the run", func(t *testing.T) {
		text, err := os.ReadFile(open)
		require.NoError(t, err)

		stack := stackFile(t, string(text)+`
  talos-proxmox-policy:environment: production
  talos-proxmox-policy:rules:
    control-plane-protection: { except: [k3s-dev-control-*] }
    host-capacity: { hosts: { pve: { vcpu: 5 } } }
`)
		r := rehearse(t, stack)

		run := filepath.Join(t.TempDir(), "policy.json")
		require.NoError(t, os.WriteFile(run,
			[]byte(`{"bridge-firewall": {"publicBridges": ["wan"]}, "host-capacity": "advisory"}`), 0o600))

		found, err := previewWith(t, r.Stack, compiled, optpreview.PolicyPackConfigs(run))
		require.NoError(t, err)
		assert.Equal(t, []string{"advisory " + room}, found)

		found, err = previewWith(t, r.Stack, compiled)
		require.Error(t, err)
		assert.Equal(t, []string{"mandatory " + control, "mandatory " + worker, "mandatory " + room}, found)
	})
}

// compilePolicies builds the policy pack, and returns the path of the binary.
func compilePolicies(t *testing.T) string {
	t.Helper()

	compiled, err := theBinaries.build("talos-proxmox-policy", "./policy")
	require.NoError(t, err)

	return compiled
}

// previewWith returns what a policy pack finds in a preview, sorted: level, rule and finding.
func previewWith(t *testing.T, stack auto.Stack, pack string, opts ...optpreview.Option) ([]string, error) {
	t.Helper()

	out, stream, found := newOutput(t), make(chan events.EngineEvent), make(chan []string)
	go func() { found <- policyFindings(stream) }()

	_, err := stack.Preview(t.Context(), append(opts, optpreview.PolicyPacks(pack), optpreview.EventStreams(stream),
		optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))...)

	return <-found, err
}

// upWith is previewWith for an update.
func upWith(t *testing.T, r *rehearsal.Rehearsal, pack string) ([]string, error) {
	t.Helper()

	out, stream, found := newOutput(t), make(chan events.EngineEvent), make(chan []string)
	go func() { found <- policyFindings(stream) }()

	_, err := r.Stack.Up(t.Context(), optup.PolicyPacks(pack), optup.EventStreams(stream),
		optup.ProgressStreams(out), optup.ErrorProgressStreams(out))

	return <-found, err
}

func policyFindings(stream <-chan events.EngineEvent) []string {
	var found []string

	for e := range stream {
		if p := e.PolicyEvent; p != nil {
			lines := strings.Split(strings.TrimSpace(p.Message), "\n")
			found = append(found, fmt.Sprintf("%s %s: %s", p.EnforcementLevel, p.PolicyName, lines[len(lines)-1]))
		}
	}

	slices.Sort(found)

	return found
}
