package preflight

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestK3sMinimums: a new server with one core is warned of; one that runs, or an agent, is not.
func TestK3sMinimums(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		cores int
		role  spec.Role
		there bool
		want  []string
	}{
		"enough":        {cores: 2, role: spec.RoleControlPlane},
		"one that runs": {cores: 1, role: spec.RoleControlPlane, there: true},
		"an agent":      {cores: 1, role: spec.RoleWorker},
		"a server, small": {cores: 1, role: spec.RoleControlPlane, want: []string{
			"pools.server.cores: is below the minimum that K3s requires for a server, 2 (given: 1); raise it",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := plantest.K3s(t)
			node := &p.Pools[0].Nodes[0]
			node.Cores, node.Role, p.Pools[0].Role = test.cores, test.role, test.role

			c := newChecker(p, nil, nil)
			c.Absent[node.VMID] = !test.there
			require.NoError(t, c.checkMinimums(t.Context()))

			var got []string
			for _, w := range c.Warnings {
				got = append(got, w.String())
			}

			assert.Equal(t, test.want, got)
			assert.Empty(t, c.Problems)
		})
	}
}
