package tests

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// TestMigratedNode moves a VM behind the program's back, as an operator does: it stays where it is, the contract says
// where that is, and only a rebalance moves it back, by migration.
func TestMigratedNode(t *testing.T) {
	t.Parallel()

	r := rehearse(t, devWith(t,
		"      - name: pve\n", "      - { name: pve1, capacity: { vcpu: 8, memoryMiB: 32768 } }\n      - { name: pve2, "+
			"capacity: { vcpu: 8, memoryMiB: 32768 } }\n",
	))

	placed := contractOf(t, upResult(t, r.Stack)).BootstrapNodes.Workers[0]
	away := map[string]string{"pve1": "pve2", "pve2": "pve1"}[placed.Host]
	require.NotEmpty(t, away)

	migrate(t, r, placed.VMID, placed.Host, away)

	_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
	require.NoError(t, err)

	out := newOutput(t)
	preview, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	requireOnlySame(t, previewed(preview.ChangeSummary))
	assert.Contains(t, out.String(), placed.Name+" is on host "+away+", but the plan would create it on "+placed.Host)

	stayed := contractOf(t, upResult(t, r.Stack)).BootstrapNodes.Workers[0]
	assert.Equal(t, away, stayed.Host)
	assert.Equal(t, placed.VMID, stayed.VMID)

	set(t, r.Stack, "placement.rebalance", "true")

	moved := contractOf(t, upResult(t, r.Stack)).BootstrapNodes.Workers[0]
	assert.Equal(t, placed, moved)
	assert.Len(t, calls(r, "/clone"), 2, "no machine was made again")
	requireNoChange(t, r.Stack)

	// It is moved just when an update changes it.
	set(t, r.Stack, "placement.rebalance", "false")
	set(t, r.Stack, "pools.worker.memoryMiB", "3072")
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Kind: journal.Interfere,
		Call:   regexp.MustCompile(fmt.Sprintf(`^(POST|PUT) /nodes/%s/qemu/%d/config$`, moved.Host, moved.VMID)),
		Before: func(journal.Entry) { migrate(t, r, moved.VMID, moved.Host, away) },
	})

	assert.Contains(t, failUp(t, r.Stack), "does not exist")

	refreshed, err := r.Stack.Up(t.Context(), optup.ProgressStreams(newOutput(t)), optup.Refresh())
	require.NoError(t, err)
	assert.Equal(t, away, contractOf(t, refreshed).BootstrapNodes.Workers[0].Host)
	assert.EqualValues(t, 3072<<20, machine(t, r, moved.Name).Memory)
	assert.Len(t, calls(r, "/clone"), 2, "no machine was made again")
	requireNoChange(t, r.Stack)

	// It is moved before it is deleted.
	migrate(t, r, moved.VMID, away, placed.Host)
	set(t, r.Stack, "pools.worker.count", "0")
	assert.Contains(t, failUp(t, r.Stack), fmt.Sprintf("is on host %s, but the state has it on %s: it was migrated "+
		"since. It is not deleted: run the same command again with --refresh", placed.Host, away))

	_, err = r.Stack.Up(engine.Terse(t.Context()), optup.ProgressStreams(newOutput(t)), optup.Refresh())
	require.NoError(t, err)
	assert.NotContains(t, vmids(r), moved.Name)
	destroy(t, r.Stack)
}

func migrate(t *testing.T, r *rehearsal.Rehearsal, vmid int, from, to string) {
	t.Helper()

	_, err := r.Lab.World().Migrate(world.Caller{ID: r.Lab.Credentials().TokenID}, from, vmid,
		world.MigrateRequest{Target: to, Online: true, WithLocalDisks: true})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		for _, vm := range r.Lab.World().Snapshot().VMs {
			if vm.ID == vmid {
				return vm.Host == to && vm.Lock == ""
			}
		}

		return false
	}, wait, 100*time.Millisecond)
}
