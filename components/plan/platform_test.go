package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/spec"
)

// TestSchedulable: control planes run pods if the key says so, and a cluster in which no node does is warned of.
func TestSchedulable(t *testing.T) {
	t.Parallel()

	const (
		absent = "cluster.schedulableControlPlanes: is not set, and there are no workers: no node takes pods; " +
			"set it to true, or to false if workers are to follow"
		without = "cluster.schedulableControlPlanes: leaves no node for pods: there are no workers (given: false); " +
			"add a pool of workers, or set it to true"
	)

	worker := spec.Pool{Role: spec.RoleWorker, Count: new(1), Addresses: "10.2.0.1-9"}
	patched := small()
	patched.Cluster.Patches = []spec.Patch{{Text: "cluster: { allowSchedulingOnControlPlanes: true }"}}

	for name, c := range map[string]struct {
		draft draft
		given *bool
		want  bool
		warns []string
	}{
		"alone":                      {small(), nil, false, []string{absent}},
		"alone, as a patch decides":  {patched, nil, false, nil},
		"alone, true":                {small(), new(true), true, nil},
		"alone, false":               {small(), new(false), false, []string{without}},
		"beside workers":             {small().with("worker", worker), nil, false, nil},
		"beside workers, as is true": {small().with("worker", worker), new(true), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c.draft.Cluster.SchedulableControlPlanes = c.given
			p := placed(t, c.draft)

			var warns []string
			for _, w := range p.Warnings {
				warns = append(warns, w.String())
			}

			assert.Equal(t, c.want, p.SchedulableControls)
			assert.Equal(t, c.warns, warns)
		})
	}
}
