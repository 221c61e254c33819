package preflight

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/plan/plantest"
)

func TestSharedStore(t *testing.T) {
	s := plan.Spec{
		Hosts:   []plan.Host{{Name: "a"}, {Name: "b"}},
		Cluster: plan.Cluster{Name: "c", Versions: plan.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Network: plan.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"}, Storage: plan.Storage{Images: "nfs"},
		Pools: map[string]plan.Pool{"control": {Role: plan.ControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}},
	}

	for shared, want := range map[string]bool{"nfs": true, "local": false} {
		found, err := check(t, plantest.New(t, s), &manyHosts{shared: map[string]bool{shared: true}})
		require.NoError(t, err)
		assert.Equal(t, want, found.SharedImages())
	}
}
