package tests

import (
	"context"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/tokens"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/contract"
)

// TestResourceOptions holds what consumers.md says of Pulumi's options: targets, drift, transforms, and protect,
// aliases, retainOnDelete and deletedWith of a whole cluster.
func TestResourceOptions(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	config := configOf(t, r)
	workers := func(count int) {
		pool := config.Pools["worker"]
		pool.Count = &count
		config.Pools["worker"] = pool
	}

	var (
		options []pulumi.ResourceOption
		changed bool
		// within are the options of a cluster below another component.
		within func(pulumi.Resource) []pulumi.ResourceOption
	)

	transform := func(_ context.Context, args *pulumi.ResourceTransformArgs) *pulumi.ResourceTransformResult {
		if args.Type != tokens.VM || !changed {
			return nil // the Go SDK loses deletedWith in the options that a transform returns
		}

		args.Props["onBoot"] = pulumi.Bool(false)

		return &pulumi.ResourceTransformResult{Props: args.Props, Opts: args.Opts}
	}

	s, err := r.Backend.InlineStack(t.Context(), "embedding", "options", func(ctx *pulumi.Context) error {
		if err := ctx.RegisterResourceTransform(transform); err != nil {
			return err
		}

		if within != nil {
			platform := &struct{ pulumi.ResourceState }{}
			if err := ctx.RegisterComponentResource("example:index:Platform", "platform", platform); err != nil {
				return err
			}

			options = within(platform)
		}

		d, err := stacks.Deploy(ctx, config, options...)
		if err != nil {
			return err
		}

		d.Export(ctx, "")

		return nil
	}, nil)
	require.NoError(t, err)

	some := func(option optup.Option) {
		_, err := s.Up(t.Context(), option, optup.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
	}

	outputs := upResult(t, s).Outputs
	api := kubernetesClient(t, outputs)

	workers(2)
	some(optup.Target([]string{"**k3s-dev-worker-1**"}))
	assert.Len(t, r.Nodes(), 3)

	// The outputs are those of the configuration.
	outputs, err = s.Outputs(t.Context())
	require.NoError(t, err)
	assert.Contains(t, outputs[contract.OutputNodeIPMap].Value, "k3s-dev-worker-2")

	some(optup.Target([]string{"**k3s-dev-worker-2**"}))
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Contains(t, readyNodes(t, api), "k3s-dev-worker-2")
	requireOnlySame(t, upChanges(t, s))

	// Drift is shown and not taken into the state; an update that refreshes repairs it.
	const mapping = "k3s-dev-gpu-1"

	require.NoError(t, r.Lab.World().DeleteMapping("pci", mapping))

	drift, err := s.PreviewRefresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Equal(t, 1, drift.ChangeSummary[apitype.OpDelete])

	_, err = s.PreviewRefresh(t.Context(), optrefresh.ExpectNoChanges(), optrefresh.ProgressStreams(newOutput(t)))
	require.Error(t, err)
	requireOnlySame(t, upChanges(t, s))
	some(optup.Refresh())

	_, err = r.Lab.World().Mapping("pci", mapping)
	require.NoError(t, err)

	options = []pulumi.ResourceOption{pulumi.Protect(true)}
	before := r.Lab.World().Snapshot()

	assert.Contains(t, failUp(t, s), "protect is not an option of a cluster")
	assert.Equal(t, before, r.Lab.World().Snapshot())

	options, changed = []pulumi.ResourceOption{pulumi.RetainOnDelete(true)}, true

	up(t, s)
	assert.EqualValues(t, 0, vmConfig(t, r, "k3s-dev-worker-2")["onboot"])

	workers(1)
	some(optup.Exclude([]string{"**k3s-dev-worker-2**"}))
	assert.Contains(t, readyNodes(t, api), "k3s-dev-worker-2")

	up(t, s)
	assert.NotContains(t, readyNodes(t, api), "k3s-dev-worker-2")
	assert.Equal(t, "k3s-dev-worker-2", vmConfig(t, r, "k3s-dev-worker-2")["name"], "the VM stays")

	changed = false

	up(t, s)

	// The cluster moves below another component, and is deleted with it.
	within = func(platform pulumi.Resource) []pulumi.ResourceOption {
		return []pulumi.ResourceOption{
			pulumi.Parent(platform), pulumi.Aliases([]pulumi.Alias{{NoParent: pulumi.Bool(true)}}),
			pulumi.RetainOnDelete(false), pulumi.DeletedWith(platform),
		}
	}
	moved := upChanges(t, s)
	delete(moved, "create") // of the component above
	requireOnlySame(t, moved)

	remove(t, r, 502)

	config.Lifecycle.Teardown = true

	up(t, s)

	_, err = s.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Equal(t, "k3s-dev-control-1", vmConfig(t, r, "k3s-dev-control-1")["name"], "the VM goes with the other resource")
}
