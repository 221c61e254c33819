package tests

import (
	"fmt"
	"net/netip"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

const impostorUUID = "deadbeef-0000-4000-8000-000000000001"

// impostorAt is another machine at the address of a node.
func impostorAt(t *testing.T, r *rehearsal.Rehearsal, node string) *talos.Impostor {
	t.Helper()

	i, err := talos.NewImpostor(t.Context(), netip.MustParseAddr(addressOf(r, node)), impostorUUID)
	require.NoError(t, err)
	t.Cleanup(i.Close)

	return i
}

// requireNothingSent holds that an impostor was asked who it is, and told nothing.
func requireNothingSent(t *testing.T, r *rehearsal.Rehearsal, i *talos.Impostor) {
	t.Helper()

	assert.False(t, i.Configured(), "%v", i.Calls())
	assert.NotEmpty(t, i.Calls(), "it was never reached")

	secrets := map[string]string{}

	for _, resource := range decrypted(t, r.Stack).Resources {
		if resource.Type == "talos:machine/secrets:Secrets" {
			private(secrets, "Secrets", resource.Outputs)
		}
	}

	require.NotEmpty(t, secrets)

	for name, value := range secrets {
		assert.NotContains(t, i.Received(), value, name)
	}
}

// requireNamesBoth holds that a message names the address, the machine there, the VM that was expected, and what to do.
func requireNamesBoth(t *testing.T, r *rehearsal.Rehearsal, said, node string) {
	t.Helper()

	assert.Contains(t, said, "another machine answers at "+addressOf(r, node)+`: it shows SMBIOS UUID "`+impostorUUID+
		`", and VM `)
	assert.Contains(t, said, uuidIn(t, r, node))
	assert.Contains(t, said, "take it off the network, then run 'pulumi up' again")
}

// uuidIn is the SMBIOS UUID of a node's VM.
func uuidIn(t *testing.T, r *rehearsal.Rehearsal, node string) string {
	t.Helper()

	found := regexp.MustCompile(`uuid=([^,]+)`).FindStringSubmatch(vmConfig(t, r, node)["smbios1"].(string))
	require.NotNil(t, found)

	return found[1]
}

// TestImpostorBeforeCreation: another machine has the address of a node before there is one. It gets nothing, and when
// it is gone the cluster comes up.
func TestImpostorBeforeCreation(t *testing.T) {
	t.Parallel()

	for _, p := range []pair{
		{"template", "metal", "", "reserved"}, {"factory", "nocloud", "iso", "static"},
	} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, p.stack()))

			nodes := r.Plan.Nodes()
			impostors := make([]*talos.Impostor, len(nodes))

			early := impostorAt(t, r, nodes[0].Name)
			assert.Contains(t, failPreview(t, r.Stack), "a machine answers there already")
			early.Close()

			// Preflight has found the addresses free.
			for at, n := range nodes {
				r.Lab.Journal().Plant(journal.Fault{
					Face: journal.Proxmox, Call: regexp.MustCompile(fmt.Sprintf(`^POST /nodes/[^/]+/qemu/%d/status/start$`, n.VMID)),
					Kind: journal.Interfere, Before: func(journal.Entry) { impostors[at] = impostorAt(t, r, n.Name) },
				})
			}

			for at, n := range nodes {
				said := failUp(t, r.Stack)

				require.NotNil(t, impostors[at])
				requireNamesBoth(t, r, said, n.Name)
				requireNothingSent(t, r, impostors[at])
				impostors[at].Close()
			}

			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))
			requireNoChange(t, r.Stack)
		})
	}
}

// TestImpostorBetweenChanges: another machine takes the address of a node that runs, before a change or in the middle
// of one. It gets nothing, and when it is gone the change is made.
func TestImpostorBetweenChanges(t *testing.T) {
	t.Parallel()

	const node = "k3s-dev-worker-1"

	r := rehearse(t, "dev")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	for value, before := range map[string]bool{"1": true, "2": false} {
		var i *talos.Impostor

		take := sync.OnceFunc(func() {
			power(t, r, node, false)
			i = impostorAt(t, r, node)
		})

		if before {
			take()
		} else {
			// The node has been asked what the change does to it, and the program looks for its pods now.
			r.Lab.Journal().Plant(journal.Fault{
				Face: journal.Kubernetes, Call: regexp.MustCompile(`nodes/` + node), Kind: journal.Interfere,
				Before: func(journal.Entry) { take() },
			})
		}

		set(t, r.Stack, "pools.worker.patches[0]", "machine: { sysctls: { vm.swappiness: \""+value+"\" } }")

		requireNamesBoth(t, r, failUp(t, r.Stack), node)
		requireNothingSent(t, r, i)

		i.Close()
		power(t, r, node, true)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
	}
}

// power switches the VM of a node on or off, and waits until it is.
func power(t *testing.T, r *rehearsal.Rehearsal, node string, on bool) {
	t.Helper()

	w, operator := r.Lab.World(), world.Caller{ID: r.Lab.Credentials().TokenID}
	v, there := w.Snapshot().VM(node)
	require.True(t, there)

	act := w.Stop
	if on {
		act = w.Start
	}

	_, err := act(operator, v.Host, v.ID)
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		v, there := w.Snapshot().VM(node)

		return there && v.Running == on
	}, wait, 20*time.Millisecond)
}
