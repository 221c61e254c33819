package tests

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/rehearsal"
)

// external is a stack whose VMs somebody else makes a cluster of.
func external(p pair) string {
	return strings.NewReplacer("versions: { talos: v1.12.4, kubernetes: v1.34.2 }", "bootstrap: external\n    versions: { talos: v1.12.4 }",
		"lifecycle: { keepImages: false, agentTimeout: 20s, nodeTimeout: 60s, readyTimeout: 60s }", "lifecycle: { agentTimeout: 20s }",
	).Replace(p.stack())
}

// TestDestroyExternal: nothing holds VMs back that are not this program's cluster. Those that are protected take the two steps that every
// cluster may take.
func TestDestroyExternal(t *testing.T) {
	t.Parallel()

	text := external(pair{"template", "metal", "", "reserved"})

	for name, c := range map[string]struct {
		text  string
		steps func(t *testing.T, r *rehearsal.Rehearsal)
	}{
		"alone": {text, func(*testing.T, *rehearsal.Rehearsal) {}},
		"protected": {strings.Replace(text, "config:\n", "config:\n  talos-proxmox:environment: production\n", 1), func(t *testing.T, r *rehearsal.Rehearsal) {
			out := newOutput(t)
			_, err := r.Stack.PreviewDestroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
			require.Error(t, err)
			assert.Contains(t, out.String(), "protect")
			set(t, r.Stack, "lifecycle.teardown", "true")
			up(t, r.Stack)
		}},
		"two steps": {text, func(t *testing.T, r *rehearsal.Rehearsal) {
			set(t, r.Stack, "lifecycle.teardown", "true")
			requireOnlySame(t, *up(t, r.Stack).Summary.ResourceChanges)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, c.text))
			up(t, r.Stack)
			c.steps(t, r)

			_, err := r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(newOutput(t)))
			require.NoError(t, err)
			assert.Empty(t, r.Leftovers())
		})
	}
}
