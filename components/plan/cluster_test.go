package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// said are the problems of a spec, as lines; none where it can be planned.
func said(t *testing.T, s draft) []string {
	t.Helper()

	_, err := New(spec.Spec(s))
	if err == nil {
		return nil
	}

	var problems spec.Problems
	require.ErrorAs(t, err, &problems)

	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}

	return all
}

// TestControlPlanesWithGPUs: GPUs say how many nodes a pool has, as count and nodes do.
func TestControlPlanesWithGPUs(t *testing.T) {
	t.Parallel()

	const one = "cluster.ha: needs an odd number of control planes, three at least (given: 1 control plane); " +
		"set the count to 3 or 5, or ha to false"

	for name, test := range map[string]struct {
		gpus map[string]spec.GPUSpec
		ha   bool
		want []string
	}{
		"none": {
			gpus: map[string]spec.GPUSpec{},
			want: []string{"pools: need at least one control plane; add a pool with role: controlplane and count: 1"},
		},
		"one":                        {gpus: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}}},
		"one with high availability": {gpus: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}}, ha: true, want: []string{one}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small()
			s.Cluster.HA = test.ha
			s = s.with("control", spec.Pool{
				Role: spec.RoleControlPlane, GPUs: test.gpus, Addresses: "10.0.0.11-10.0.0.19",
				Image: spec.PoolImage{Template: "9000"},
			})

			assert.Equal(t, test.want, said(t, s))
		})
	}

	s := small().with("more", spec.Pool{
		Role: spec.RoleControlPlane, GPUs: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}}, VMIDs: "801-809",
		Addresses: "10.0.1.11-10.0.1.19", Image: spec.PoolImage{Template: "9000"},
	})

	var warnings []string
	for _, w := range placed(t, s).Warnings {
		warnings = append(warnings, w.String())
	}

	assert.Contains(t, strings.Join(warnings, "\n"), "an even number of control planes tolerates no more failures than "+
		"one less (given: 2 control planes)")
}
