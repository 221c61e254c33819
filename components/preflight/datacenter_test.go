package preflight

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan/plantest"
	"talos-proxmox/components/spec"
)

func TestSharedStore(t *testing.T) {
	s := spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "a"}, {Name: "b"}}, Storage: spec.Storage{Images: "nfs"}},
		Cluster: spec.Cluster{Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Network: spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
		Pools:   map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}},
	}

	for shared, want := range map[string]bool{"nfs": true, "local": false} {
		found, err := check(t, plantest.New(t, s), &manyHosts{shared: map[string]bool{shared: true}})
		require.NoError(t, err)
		assert.Equal(t, want, found.SharedImages())
	}
}
