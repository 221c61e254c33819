package proxmoxvm

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/proxmoxapi"
)

// cloneOf are the arguments of the hook before a clone is made.
func cloneOf(name, host string, template float64) *pulumi.ResourceHookArgs {
	args := inputs(map[string]any{
		"vmId": 501.0, "clone": map[string]any{"vmId": template, "nodeName": host, "full": true},
	})
	args.Name = name

	return args
}

// TestParallelClones: so many clones of one template on one host are made at a time; others do not wait for them.
func TestParallelClones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string

		c := &Clones{Limit: 2, GracePeriod: time.Hour, Progress: func(m string) { said = append(said, m) }}
		begin := func(args *pulumi.ResourceHookArgs) <-chan error {
			begun := make(chan error, 1)
			go func() { begun <- c.Begin(t.Context(), args) }()

			synctest.Wait()

			return begun
		}

		for _, args := range []*pulumi.ResourceHookArgs{
			cloneOf("a", "pve1", 9000), cloneOf("b", "pve1", 9000), cloneOf("c", "pve2", 9000), cloneOf("d", "pve1", 9001),
			inputs(map[string]any{"vmId": 502.0}),
		} {
			require.NoError(t, <-begin(args))
		}

		assert.Empty(t, said)

		waiting := begin(cloneOf("e", "pve1", 9000))
		require.Empty(t, waiting)
		assert.Equal(t, []string{
			"e waits for other clones of template 9000 on host pve1 (image.template.parallelClones: 2)",
		}, said)

		c.End("c")
		synctest.Wait()
		require.Empty(t, waiting, "a clone on another host is done")

		assert.False(t, c.Failed(t.Context(), failed("a", "out of space")))
		require.NoError(t, <-waiting, "one that failed makes way")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.EqualError(t, c.Begin(ctx, cloneOf("f", "pve1", 9000)),
			"f: interrupted while it waited for other clones of template 9000 on host pve1: context canceled")

		c.End("b")
		c.End("b")
		require.NoError(t, <-begin(cloneOf("g", "pve1", 9000)))
		require.Empty(t, begin(cloneOf("h", "pve1", 9000)), "what is given back twice counts once")
		c.End("e")
		c.End("g")
		synctest.Wait()
	})
}

// TestCloneNotHeardOf: a clone whose failure no hook is told of is not waited for without end; others that end are.
func TestCloneNotHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Clones{Limit: 2, GracePeriod: time.Hour, Progress: func(string) {}}

		for _, name := range []string{"a", "b"} {
			require.NoError(t, c.Begin(t.Context(), cloneOf(name, "pve1", 9000)))
		}

		begun := make(chan error, 2)

		for _, name := range []string{"c", "d"} {
			go func() { begun <- c.Begin(t.Context(), cloneOf(name, "pve1", 9000)) }()
		}

		time.Sleep(50 * time.Minute)
		c.End("a")
		require.NoError(t, <-begun)

		time.Sleep(50 * time.Minute)
		require.Empty(t, begun, "another has ended within the hour")
		assert.Regexp(t, "^[cd] was not created: none of the other clones of template 9000 on host pve1 has ended "+
			"within 1h0m0s, the limit for one clone, so they have failed. Run 'pulumi up' again$", <-begun)
	})
}

// TestUnlimitedClones: without a limit, none waits.
func TestUnlimitedClones(t *testing.T) {
	c := &Clones{Progress: func(string) { t.Error("waits") }}

	for range 100 {
		require.NoError(t, c.Begin(t.Context(), cloneOf("a", "pve1", 9000)))
	}

	c.End("a")
}

func failed(name, why string) *pulumi.ErrorHookArgs {
	args := cloneOf(name, "pve1", 9000)

	return &pulumi.ErrorHookArgs{
		Name: name, NewInputs: args.NewInputs, FailedOperation: "create", Errors: []string{why, "an earlier one"},
	}
}

// TestLockedTemplate: a clone that a lock has refused is made again, for as long as a task may take, where nothing of
// it is there.
func TestLockedTemplate(t *testing.T) {
	const locked = `received an HTTP 500 response - Reason: can't lock file '/var/lock/qemu-server/lock-9000.conf' - got timeout`

	synctest.Test(t, func(t *testing.T) {
		var said []string

		start := time.Now()
		c := &Clones{
			Timeout: 30 * time.Minute, Proxmox: &oneVM{}, Progress: func(m string) { said = append(said, m) },
		}

		tries := 0
		for c.Failed(t.Context(), failed("a", locked)) {
			tries++
		}

		assert.LessOrEqual(t, tries, 99, "the engine asks a hundred times at most")
		assert.InDelta(t, 30*time.Minute, time.Since(start), float64(time.Minute))
		assert.Equal(t, "a waits for template 9000 on host pve1, for at most 30m0s (lifecycle.taskTimeout): "+
			"can't lock file '/var/lock/qemu-server/lock-9000.conf' - got timeout", said[0])

		assert.True(t, c.Failed(t.Context(), failed("b", "VM is locked (clone)")), "its time begins with its first lock")

		c.Proxmox = &oneVM{machine: &proxmoxapi.VM{ID: 501}}
		assert.False(t, c.Failed(t.Context(), failed("c", locked)), "something of the clone is there")

		given := &oneVM{}
		c.Proxmox, c.Progress = given, func(string) { given.machine = &proxmoxapi.VM{ID: 501} }
		assert.False(t, c.Failed(t.Context(), failed("h", locked)), "its VMID was given away meanwhile")

		c.Progress = func(m string) { said = append(said, m) }
		c.Proxmox = &oneVM{err: proxmoxapi.ErrUnreachable}
		assert.False(t, c.Failed(t.Context(), failed("d", locked)), "whether something is there is not known")

		c.Proxmox = &oneVM{}
		assert.False(t, c.Failed(t.Context(), failed("e", "storage 'tank' does not exist")))

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, c.Failed(ctx, failed("f", locked)))

		other := failed("g", locked)
		other.NewInputs = inputs(map[string]any{"vmId": 501.0}).NewInputs
		assert.False(t, c.Failed(t.Context(), other), "it is no clone")
		assert.True(t, strings.HasPrefix(said[len(said)-1], "f waits"))
	})
}
