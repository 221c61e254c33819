package vms

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// pooledVMs is a Proxmox VE with resource pools, whose credentials have this privilege on all of them.
type pooledVMs struct {
	preflighttest.Healthy

	pools     []string
	privilege string
}

func (p pooledVMs) ResourcePools(context.Context) ([]string, error) { return p.pools, nil }

func (p pooledVMs) Permissions(context.Context) (proxmoxapi.Permissions, error) {
	return proxmoxapi.Permissions{"/pool": {p.privilege: true}}, nil
}

// TestResourcePools: a resource pool that does not exist is refused; one that the credentials may not see may exist.
func TestResourcePools(t *testing.T) {
	missing := spec.Problems{{
		Path: "pools.w.resourcePool", Rule: "does not exist in this Proxmox VE, or the credentials lack Pool.Audit on it",
		Value: "dev", Remedy: "create it (Datacenter, Permissions, Pools), name one that exists, or grant Pool.Audit and " +
			"Pool.Allocate on /pool/dev",
	}}

	for name, c := range map[string]struct {
		pools             []string
		blind, teardown   bool
		pool              string // of the VM that the node has
		problems, warning spec.Problems
	}{
		"there":                        {pools: []string{"dev"}},
		"another one":                  {pools: []string{"DEV"}, problems: missing},
		"not to be seen":               {blind: true, warning: missing},
		"a VM is in it":                {pool: "dev"},
		"a VM is in another one":       {pool: "ops", problems: missing},
		"the end of the whole of it":   {teardown: true},
		"seen, whatever is held of it": {pools: []string{"dev"}, blind: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Teardown: c.teardown, Pools: []plan.PlannedPool{{Name: "w", Nodes: []plan.Node{
				{Name: "c-w-1", Pool: "w", VMID: 501, ResourcePool: "dev"},
				{Name: "c-w-2", Pool: "w", VMID: 502, ResourcePool: "dev"},
			}}}}
			h := pooledVMs{pools: c.pools, privilege: map[bool]string{false: "Pool.Audit", true: "Pool.Allocate"}[c.blind]}
			s := New(checks.New(p, h))
			s.VMs = []proxmoxapi.VM{{ID: 501, Name: "c-w-1", Host: "pve", Pool: c.pool}}
			require.NoError(t, s.CheckResourcePools(t.Context()))

			assert.Equal(t, c.problems, s.Problems.Unique())
			assert.Equal(t, c.warning, s.Warnings.Unique())
		})
	}
}
