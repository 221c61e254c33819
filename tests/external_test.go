package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// external is a stack whose VMs somebody else makes a cluster of.
func external(p pair) string {
	return strings.NewReplacer("versions: { talos: v1.12.4, kubernetes: v1.34.2 }", "bootstrap: external\n    versions: { talos: v1.12.4 }",
		"lifecycle: { keepImages: false, agentTimeout: 20s, nodeTimeout: 60s, readyTimeout: 60s }", "lifecycle: { agentTimeout: 20s }",
	).Replace(p.stack())
}

// TestDestroyExternal: nothing but its identity holds a VM back that is not of this program's cluster, and the program looks at that. VMs that
// are protected take the two steps that every cluster may take.
func TestDestroyExternal(t *testing.T) {
	t.Parallel()

	text := external(pair{"template", "metal", "", "reserved"})

	for name, c := range map[string]struct {
		text  string
		steps func(t *testing.T, r *rehearsal.Rehearsal)
		o     []optdestroy.Option
	}{
		"alone": {text, func(t *testing.T, r *rehearsal.Rehearsal) {
			out := newOutput(t)
			_, err := r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
			require.Error(t, err)
			assert.Contains(t, out.String(), "has delete hooks registered, but the program is not running")
		}, []optdestroy.Option{optdestroy.RunProgram(true)}},
		"protected": {strings.Replace(text, "config:\n", "config:\n  talos-proxmox:environment: production\n", 1), func(t *testing.T, r *rehearsal.Rehearsal) {
			out := newOutput(t)
			_, err := r.Stack.PreviewDestroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
			require.Error(t, err)
			assert.Contains(t, out.String(), "protect")
			set(t, r.Stack, "lifecycle.teardown", "true")
			up(t, r.Stack)
		}, nil},
		"two steps": {text, func(t *testing.T, r *rehearsal.Rehearsal) {
			set(t, r.Stack, "lifecycle.teardown", "true")
			requireOnlySame(t, *up(t, r.Stack).Summary.ResourceChanges)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, c.text))
			up(t, r.Stack)
			c.steps(t, r)

			_, err := r.Stack.Destroy(t.Context(), append(c.o, optdestroy.ProgressStreams(newOutput(t)))...)
			require.NoError(t, err)
			assert.Empty(t, r.Leftovers())
		})
	}
}

// TestExternalByHand: an ISO file that stays in the drive is pointed out until it is taken out, and a VM that was renamed is refused with the
// way back. Both commands do what they say.
func TestExternalByHand(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, external(pair{"factory", "nocloud", "iso", "static"})))
	up(t, r.Stack)

	operator := world.Caller{ID: r.Lab.Credentials().TokenID}
	preview := func() string {
		out := newOutput(t)
		_, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
		require.NoError(t, err)

		return out.String()
	}
	edit := func(v world.VMState, key, value string) {
		require.NoError(t, r.Lab.World().Update(operator, v.Host, v.ID, world.UpdateRequest{Conf: map[string]string{key: value}}))
	}

	first, control := preview(), world.VMState{}

	for _, name := range []string{"pair-control-1", "pair-worker-1"} {
		v, _ := r.Lab.World().Snapshot().VM(name)
		control = v

		assert.Contains(t, first, "leaves the ISO file in the drives of VMs on host "+v.Host+", which pins them to it")
		assert.Contains(t, first, fmt.Sprintf("'qm set %d --ide2 none,media=cdrom'", v.ID))
		edit(v, "ide2", "none,media=cdrom")
	}

	assert.NotContains(t, preview(), "leaves the ISO file")

	edit(control, "name", "renamed")
	assert.Contains(t, failPreview(t, r.Stack), fmt.Sprintf("where the VM was renamed, run 'qm set %d --name %s' on host %s", control.ID, control.Name, control.Host))
	edit(control, "name", control.Name)
	requireNoChange(t, r.Stack)
}
