package proxmoxvm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

func TestEjectISO(t *testing.T) {
	s := &oneVM{machine: &proxmoxapi.VM{ID: 401, Name: "c-control-1", Host: "pve2"}}

	require.NoError(t, EjectISO(t.Context(), s, plan.Node{Name: "c-control-1", VMID: 401, CDROM: "ide2"}))
	assert.Equal(t, []string{"c-control-1 ide2"}, s.ejected)

	assert.EqualError(t, EjectISO(t.Context(), s, plan.Node{Name: "c-control-2", VMID: 402, CDROM: "ide2"}),
		"c-control-2: there is no VM with VMID 402 to take the ISO file out of")
}
