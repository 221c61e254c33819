package planner

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// TestAddonVolumes: an addon with a volume on some of the nodes that run its pods is warned of on the others.
func TestAddonVolumes(t *testing.T) {
	t.Parallel()

	warned := func(addon spec.Addon, schedulable bool) []string {
		s := small().with("fast", spec.Pool{
			Role: spec.RoleWorker, Count: new(1), Addresses: "10.2.0.1", VMIDs: "801-809",
			VMSpec: spec.VMSpec{ExtraDisks: []spec.ExtraDisk{{SizeGiB: 10, Volume: &spec.Volume{Name: "openebs"}}}},
		}).with("slow", spec.Pool{Role: spec.RoleWorker, Count: new(1), Addresses: "10.3.0.1", VMIDs: "901-909"})
		s.Network.Gateway, s.Cluster.Addons = "10.0.0.1", []spec.Addon{addon}
		s.Cluster.SchedulableControlPlanes = &schedulable

		p, err := Plan(spec.Spec(s))
		require.NoError(t, err)
		require.True(t, p.HasVolume("openebs"))
		require.False(t, p.HasVolume("longhorn"))

		var paths []string
		for _, w := range p.Warnings {
			paths = append(paths, w.Path)
		}

		return paths
	}

	assert.Empty(t, warned(spec.AddonLocalPath, true))
	assert.Equal(t, []string{"pools.slow.extraDisks"}, warned(spec.AddonOpenEBS, false))
	assert.Equal(t, []string{"pools.control.extraDisks", "pools.slow.extraDisks"}, warned(spec.AddonOpenEBS, true))
}
