package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/spec"
)

// TestWhereVMsRun: haGroup and ha say the same thing in two ways, and what is nearer to a node holds.
func TestWhereVMsRun(t *testing.T) {
	t.Parallel()

	group, hosts := spec.VMSpec{HAGroup: new("all")}, spec.VMSpec{HA: &spec.HA{Hosts: []string{"pve"}}}

	type decided struct {
		group string
		ha    *spec.HA
	}

	for name, test := range map[string]struct {
		defaults, pool spec.VMSpec
		want           decided
		problems       []string
	}{
		"group of defaults":      {defaults: group, want: decided{group: "all"}},
		"hosts in its place":     {defaults: group, pool: hosts, want: decided{ha: hosts.HA}},
		"group in their place":   {defaults: hosts, pool: group, want: decided{group: "all"}},
		"another group":          {defaults: group, pool: spec.VMSpec{HAGroup: new("some")}, want: decided{group: "some"}},
		"group, and an empty ha": {defaults: group, pool: spec.VMSpec{HA: &spec.HA{}}, want: decided{"all", &spec.HA{}}},
		"both at once": {
			pool: spec.VMSpec{HAGroup: group.HAGroup, HA: hosts.HA},
			problems: []string{
				"pools.worker.ha: says where VMs run, and so does haGroup (given: all); leave one of the two out",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().with("worker", workersWith(test.pool))
			s.Defaults = test.defaults

			if got := said(t, s); !assert.Equal(t, test.problems, got) || got != nil {
				return
			}

			n := placed(t, s).Pools[1].Nodes[0]
			assert.Equal(t, test.want, decided{n.HAGroup, n.HA})
		})
	}
}
