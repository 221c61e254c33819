package vmidentity_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// cluster is a Proxmox VE with one VM.
type cluster struct {
	vm           *proxmoxapi.VM
	config       proxmoxapi.VMConfig
	lost, silent error
}

func (c cluster) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	if c.lost != nil || c.vm == nil || c.vm.ID != vmid {
		return proxmoxapi.VM{}, false, c.lost
	}

	return *c.vm, true, nil
}

func (c cluster) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return c.config, c.silent
}

func TestCompare(t *testing.T) {
	const (
		uuid  = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
		other = "110ec58a-a0f2-4ac4-8393-c866d813b8d1"
	)

	owner := []string{"home", "talos"}
	ours := vmidentity.Machine{VMID: 502, Name: "home-worker-2", UUID: uuid, Tags: []string{"home", "talos", "worker"}}
	at := proxmoxapi.VM{ID: 502, Name: "home-worker-2", Host: "pve"}
	payroll := proxmoxapi.VM{ID: 502, Name: "payroll-db", Host: "pve2"}
	container, template, off := payroll, payroll, at
	container.Container, template.Template, off.Stopped = true, true, true

	tagged := at
	tagged.Tags = ours.Tags

	refreshed := ours
	refreshed.Name, refreshed.UUID, refreshed.Tags = "payroll-db", other, nil

	copied := ours
	copied.UUID = other

	unnamed := ours
	unnamed.UUID = ""

	half := proxmoxapi.VMConfig{UUID: other, Settings: map[string]string{"description": vmidentity.Describe("Talos "+
		"worker", uuid)}}
	whole := proxmoxapi.VMConfig{UUID: other, Settings: map[string]string{"description": vmidentity.Describe("Talos "+
		"worker", uuid), "tags": "home;talos;worker"}}

	const begun = `VMID 502 is "home-worker-2" on host pve (UUID ` + other + `), but its notes state UUID ` + uuid +
		`: it is a copy of a template without its settings, which Proxmox VE, or a proxy in its place, accepted but did not apply`

	for name, c := range map[string]struct {
		machine vmidentity.Machine
		proxmox cluster
		want    vmidentity.Verdict
		why     string
	}{
		"ours": {ours, cluster{
			vm:     &at,
			config: proxmoxapi.VMConfig{UUID: "6C84FB90-12C4-11E1-840D-7B25C5EE775A"},
		}, vmidentity.VerdictOwn, ""},
		"gone":               {ours, cluster{}, vmidentity.VerdictGone, ""},
		"Proxmox VE is gone": {ours, cluster{lost: errors.New("no route")}, vmidentity.VerdictUnknown, "no route"},
		"its host is gone":   {ours, cluster{vm: &at, silent: errors.New("595")}, vmidentity.VerdictUnknown, "595"},
		"another": {
			ours,
			cluster{vm: &payroll, config: proxmoxapi.VMConfig{UUID: other}},
			vmidentity.VerdictForeign,
			`VMID 502 is "payroll-db" on host pve2 (UUID ` + other + `), and the state has home-worker-2 there (UUID ` + uuid +
				`)`,
		},
		"another of our name": {
			ours,
			cluster{vm: &at, config: proxmoxapi.VMConfig{UUID: other}},
			vmidentity.VerdictForeign,
			`VMID 502 is "home-worker-2" on host pve (UUID ` + other + `), and the state has home-worker-2 there (UUID ` + uuid +
				`)`,
		},
		"a container": {
			ours,
			cluster{vm: &container},
			vmidentity.VerdictForeign,
			`VMID 502 is "payroll-db" on host pve2, a container`,
		},
		"a template": {ours, cluster{vm: &template}, vmidentity.VerdictForeign, `VMID 502 is "payroll-db" on host pve2, a template`},
		"taken over by a refresh": {
			refreshed,
			cluster{vm: &payroll, config: proxmoxapi.VMConfig{UUID: other}},
			vmidentity.VerdictForeign,
			`VMID 502 is "payroll-db" on host pve2 (UUID ` + other +
				`), without the tags home and talos of this cluster: a refresh has taken it into the state`,
		},
		"taken over by a refresh, and tagged since": {
			refreshed, cluster{vm: &tagged, config: proxmoxapi.VMConfig{UUID: other}}, vmidentity.VerdictOwn, "",
		},
		"a copy of our VM, taken over by a refresh": {
			copied,
			cluster{vm: &at, config: whole},
			vmidentity.VerdictForeign,
			`VMID 502 is "home-worker-2" on host pve (UUID ` + other + `), a copy of the VM with UUID ` + uuid +
				` by its notes: a refresh has taken it into the state`,
		},
		"as it was made": {
			ours,
			cluster{vm: &at, config: proxmoxapi.VMConfig{
				UUID:     uuid,
				Settings: map[string]string{"description": vmidentity.Describe("Talos worker", uuid) + "\n"},
			}},
			vmidentity.VerdictOwn, "",
		},
		"a state without its UUID": {
			unnamed,
			cluster{vm: &at, config: proxmoxapi.VMConfig{UUID: uuid}},
			vmidentity.VerdictUnknown,
			"the state has no UUID of home-worker-2 (VMID 502)",
		},
		"a copy that was cut off":             {ours, cluster{vm: &off, config: half}, vmidentity.VerdictOwn, ""},
		"a copy that runs":                    {ours, cluster{vm: &at, config: half}, vmidentity.VerdictForeign, begun},
		"a copy that runs, and was refreshed": {copied, cluster{vm: &at, config: half}, vmidentity.VerdictForeign, begun},
		"made for the node by another run": {
			ours,
			cluster{vm: &tagged, config: proxmoxapi.VMConfig{
				UUID: other, Settings: map[string]string{"description": vmidentity.Describe("Talos worker", other)},
			}},
			vmidentity.VerdictForeign,
			`VMID 502 is "home-worker-2" on host pve (UUID ` + other + `), and the state has home-worker-2 there (UUID ` + uuid +
				`)`,
		},
		"a copy of our VM": {
			ours,
			cluster{vm: &off, config: whole},
			vmidentity.VerdictForeign,
			`VMID 502 is "home-worker-2" on host pve (UUID ` + other + `), and the state has home-worker-2 there (UUID ` + uuid +
				`)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.machine.Compare(t.Context(), c.proxmox, owner)
			assert.Equal(t, c.want, got.Verdict)
			assert.Equal(t, c.why, got.Why)
			assert.Equal(t, name == "taken over by a refresh", got.Untagged.ID == 502)
			assert.Equal(t, c.why == begun, got.Bare.ID == 502)
			assert.Equal(t, name == "made for the node by another run", got.Successor != nil)
		})
	}

	assert.Equal(t, "Talos worker", vmidentity.Description(vmidentity.Describe("Talos worker", uuid)))
	assert.Equal(t, "Talos worker", vmidentity.Description("Talos worker"))
	assert.Empty(t, vmidentity.Description("VM UUID "+uuid), "a person has added it to notes that were empty")
}
