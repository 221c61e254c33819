package state

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/proxmoxapi"
)

// someHosts answer with these errors.
type someHosts map[string]error

func (h someHosts) VMsOn(_ context.Context, host string) ([]proxmoxapi.VM, error) {
	return nil, h[host]
}

// TestCheckHosts: a refresh does not begin while a host with VMs of the cluster is down.
func TestCheckHosts(t *testing.T) {
	vms := []proxmoxapi.VM{{ID: 401, Name: "a", Host: "pve1"}, {ID: 402, Name: "b", Host: "pve2"}}
	down := fmt.Errorf("no route: %w", proxmoxapi.ErrHostUnreachable)

	assert.NoError(t, checkHosts(t.Context(), someHosts{"pve3": down}, vms), "none of its VMs is ours")
	assert.EqualError(t, checkHosts(t.Context(), someHosts{"pve2": down}, vms),
		"host pve2 does not answer, and has "+vms[1].Label()+": start it; 'up --refresh=false' changes other nodes meanwhile")
	assert.EqualError(t, checkHosts(t.Context(), someHosts{"pve1": errors.New("500")}, vms), "500")
}
