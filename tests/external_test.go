package tests

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// external is a stack whose VMs others make a cluster of.
func external(p pair) string {
	return strings.NewReplacer("versions: { talos: v1.12.4, kubernetes: v1.34.2 }",
		"bootstrap: external\n    versions: { talos: v1.12.4 }",
		"lifecycle: { keepImages: false, agentTimeout: 20s, nodeTimeout: 60s, readyTimeout: 60s }",
		"lifecycle: { agentTimeout: 20s }",
	).Replace(p.stack())
}

// TestDestroyExternal: nothing but its identity holds a VM back that is not of this program's cluster, and the program
// looks at that. VMs that are protected take the two steps that every cluster may take.
func TestDestroyExternal(t *testing.T) {
	t.Parallel()

	text := external(pair{"template", "metal", "", "reserved"})

	for name, c := range map[string]struct {
		text  string
		steps func(t *testing.T, r *rehearsal.Rehearsal)
		o     []optdestroy.Option
	}{
		"alone": {text, func(t *testing.T, r *rehearsal.Rehearsal) {
			out := newOutput(t)
			_, err := r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
			require.Error(t, err)
			assert.Contains(t, out.String(), "has delete hooks registered, but the program is not running")
		}, []optdestroy.Option{optdestroy.RunProgram(true)}},
		"protected": {
			strings.Replace(text, "config:\n", "config:\n  talos-proxmox:environment: production\n", 1),
			func(t *testing.T, r *rehearsal.Rehearsal) {
				out := newOutput(t)
				_, err := r.Stack.PreviewDestroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
					optdestroy.ErrorProgressStreams(out))
				require.Error(t, err)
				assert.Contains(t, out.String(), "protect")
				set(t, r.Stack, "lifecycle.teardown", "true")
				up(t, r.Stack)
			}, nil,
		},
		"two steps": {text, func(t *testing.T, r *rehearsal.Rehearsal) {
			set(t, r.Stack, "lifecycle.teardown", "true")
			requireOnlySame(t, upChanges(t, r.Stack))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, c.text))
			up(t, r.Stack)
			c.steps(t, r)

			_, err := r.Stack.Destroy(t.Context(), append(c.o, optdestroy.ProgressStreams(newOutput(t)))...)
			require.NoError(t, err)
			assert.Empty(t, r.Leftovers())
		})
	}
}

// TestExternalByHand: an ISO file that stays in the drive is pointed out until it is taken out, and a VM that was
// renamed is refused with the way back. Both commands do what they say.
func TestExternalByHand(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, external(pair{"factory", "nocloud", "iso", "static"})))
	up(t, r.Stack)

	operator := world.Caller{ID: r.Lab.Credentials().TokenID}
	preview := func() string {
		out := newOutput(t)
		_, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
		require.NoError(t, err)

		return out.String()
	}
	edit := func(v world.VMState, key, value string) {
		require.NoError(t, r.Lab.World().Update(operator, v.Host, v.ID,
			world.UpdateRequest{Conf: map[string]string{key: value}}))
	}

	first, control := preview(), world.VMState{}

	for _, name := range []string{"pair-control-1", "pair-worker-1"} {
		v, _ := r.Lab.World().Snapshot().VM(name)
		control = v

		assert.Contains(t, first, "leaves the ISO file in the drives of VMs on host "+v.Host+", which pins them to it")
		assert.Contains(t, first, fmt.Sprintf("'qm set %d --ide2 none,media=cdrom'", v.ID))
		edit(v, "ide2", "none,media=cdrom")
	}

	assert.NotContains(t, preview(), "leaves the ISO file")

	edit(control, "name", "renamed")
	assert.Contains(t, failPreview(t, r.Stack),
		fmt.Sprintf("if the VM was renamed, rename it back: run 'qm set %d --name %s' on host %s", control.ID, control.Name,
			control.Host))
	edit(control, "name", control.Name)
	requireSettled(t, r.Stack)
}

// TestPinnedByISO: an ISO file in the drive of a VM keeps it on its host. Rebalance and high availability say so, and
// the VM moves once the file is out.
func TestPinnedByISO(t *testing.T) {
	t.Parallel()

	text := strings.NewReplacer(
		"role: controlplane,", "role: controlplane, host: pve1,", "role: worker,",
		"role: worker, host: pve2, haGroup: racks,",
	).Replace(external(pair{"factory", "nocloud", "iso", "static"}))
	r := rehearse(t, stackFile(t, text))
	up(t, r.Stack)

	worker, _ := r.Lab.World().Snapshot().VM("pair-worker-1")
	out := newOutput(t)
	_, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	assert.Contains(t, out.String(), "high availability has no effect on pair-worker-1 until then")

	set(t, r.Stack, "pools.worker.host", "pve1")
	set(t, r.Stack, "placement.rebalance", "true")

	for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
		assert.Contains(t, said, "placement.rebalance: pair-worker-1 cannot move from host pve2 to pve1: local:iso/")
		assert.Contains(t, said, fmt.Sprintf("run 'qm set %d --ide2 none,media=cdrom' on host %s", worker.ID, worker.Host))
	}

	require.NoError(t, r.Lab.World().Update(world.Caller{ID: "root@pam"}, worker.Host, worker.ID,
		world.UpdateRequest{Conf: map[string]string{"ide2": "none,media=cdrom"}}))
	up(t, r.Stack)

	moved, _ := r.Lab.World().Snapshot().VM("pair-worker-1")
	assert.Equal(t, "pve1", moved.Host)
}

// editable is a stack with all that an operator can change outside of it.
var editable = strings.NewReplacer("    worker: { role: worker, count: 2, addresses: 192.168.10.21-49 }\n",
	"    worker: { role: worker, count: 1, addresses: 192.168.10.21-49, haGroup: racks, resourcePool: talos }\n"+
		"    gpu: { role: worker, addresses: 192.168.10.51-59, gpus: { \"1\": { bdf: \"0000:01:00.0\" } } }\n",
).Replace(machinesOnly)

// TestChangedByHand: what was changed or removed outside of the stack is restored by an update with a refresh, or
// refused with the way to restore it.
func TestChangedByHand(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, editable))
	up(t, r.Stack)
	requireSettled(t, r.Stack)

	w := r.Lab.World()
	root := world.Caller{ID: "root@pam"}
	worker, _ := w.Snapshot().VM("home-worker-1")
	sid, firewall := fmt.Sprintf("vm:%d", worker.ID), world.FirewallScope{VMID: worker.ID}

	edit := func(conf map[string]string, remove ...string) error {
		return w.Update(root, worker.Host, worker.ID, world.UpdateRequest{Conf: conf, Delete: remove})
	}
	ha := func() any {
		found, err := w.HAResource(sid)
		if err != nil {
			return err.Error()
		}

		return []any{found.Group, found.State}
	}
	mapping := func() any {
		found, err := w.Mapping("pci", "home-gpu-1")
		if err != nil {
			return err.Error()
		}

		return found.Map
	}
	pool := func() any {
		found, err := w.Pool("talos")
		require.NoError(t, err)

		return found
	}
	rules := func() any {
		found, _, err := w.FirewallRules(firewall)
		require.NoError(t, err)

		return found
	}
	options := func() any {
		found, _ := w.FirewallOptions(firewall)

		return found
	}
	config := func() any {
		found, err := w.Config(worker.Host, worker.ID, true)
		require.NoError(t, err)

		return []any{found["name"], found["tags"]}
	}
	other := "another"

	for _, c := range []struct {
		name string
		// now is what is changed, and what it is to be again.
		now func() any
		act func() error
		// refused is what is said until back has done so; empty: it is healed.
		refused string
		back    func() error
		// refreshes is how many updates with a refresh it takes; 0: one without.
		refreshes int
	}{
		{"HA entry removed", ha, func() error { return w.DeleteHAResource(sid) }, "", nil, 1},
		{"HA entry stopped", ha, func() error {
			return w.UpdateHAResource(sid, world.HAUpdate{State: new("disabled")})
		}, "", nil, 1},
		{"HA entry in no group", ha, func() error {
			return w.UpdateHAResource(sid, world.HAUpdate{Delete: []string{"group"}})
		}, "", nil, 1},
		{
			"VM renamed", config, func() error { return edit(map[string]string{"name": other}) },
			fmt.Sprintf("rename it back: run 'qm set %d --name %s' on host %s", worker.ID, worker.Name, worker.Host),
			func() error { return edit(map[string]string{"name": worker.Name}) }, 1,
		},
		{
			"VM without its tags", config, func() error { return edit(nil, "tags") },
			fmt.Sprintf("If it is the VM of %s and lost its tags, run 'qm set %d --tags home,talos' on host %s",
				worker.Name, worker.ID, worker.Host),
			func() error { return edit(map[string]string{"tags": "home;talos"}) }, 1,
		},
		{"mapping removed", mapping, func() error { return w.DeleteMapping("pci", "home-gpu-1") }, "", nil, 1},
		{"mapping of another card", mapping, func() error {
			return w.UpdateMapping("pci", "home-gpu-1",
				world.MappingUpdate{Map: []string{"node=pve,path=0000:02:00,id=10de:2204"}})
		}, "", nil, 1},
		{"out of its pool", pool, func() error {
			return w.UpdatePool("talos", world.PoolUpdate{VMs: []string{fmt.Sprint(worker.ID)}, Delete: true})
		}, "", nil, 0},
		{"firewall off", options, func() error {
			return w.SetFirewallOptions(firewall, map[string]string{"enable": "0"}, nil, "")
		}, "", nil, 1},
		{"in another pool", pool, func() error {
			return errors.Join(w.CreatePool("others", ""),
				w.UpdatePool("others", world.PoolUpdate{VMs: []string{fmt.Sprint(worker.ID)}, AllowMove: true}))
		}, "", nil, 0},
		{"firewall open", options, func() error {
			return w.SetFirewallOptions(firewall, map[string]string{"policy_in": "ACCEPT"}, nil, "")
		}, "", nil, 1},
		{"rule removed", rules, func() error { return w.DeleteFirewallRule(firewall, 0, "") }, "", nil, 1},
		{
			"rule added", rules, func() error {
				return w.AddFirewallRule(firewall,
					world.FirewallRule{"type": "in", "action": "ACCEPT", "proto": "tcp", "dport": "22", "enable": "1"})
			},
			"has a firewall rule that this program has not written, at position 0 (in ACCEPT tcp 22)",
			func() error { return w.DeleteFirewallRule(firewall, 0, "") }, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.now()
			require.NoError(t, c.act())
			require.NotEqual(t, before, c.now())

			if c.refused != "" {
				out := newOutput(t)
				_, err := r.Stack.Preview(t.Context(), optpreview.Refresh(),
					optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
				require.Error(t, err)
				assert.Contains(t, out.String(), c.refused)

				out = newOutput(t)
				_, err = r.Stack.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
				require.Error(t, err)
				assert.Contains(t, out.String(), c.refused)
				require.NoError(t, c.back())
			}

			if c.refreshes == 0 {
				up(t, r.Stack)
			}

			for range c.refreshes {
				_, err := r.Stack.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
				require.NoError(t, err)
			}

			assert.Equal(t, before, c.now())
			requireSettled(t, r.Stack)
		})
	}
}

// reservedAddress is one node with a guest agent, whose address the DHCP server has reserved.
const reservedAddress = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: vms, bootstrap: external, versions: { talos: v1.12.4 } }
  talos-proxmox:image: { source: template, schematic: [qemu-guest-agent], template: { control: talos-v1.12.4-base } }
  talos-proxmox:network: { cidr: 192.168.10.0/24, addressing: reserved }
  talos-proxmox:pools: { control: { role: controlplane, count: 1, addresses: 192.168.10.11 } }
`

// TestReportedAddress: the guest agent of a node reports another address than the planned one. The update that creates
// the node says so, and each later preview.
func TestReportedAddress(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, reservedAddress))
	reserved := r.Plan.Nodes()[0].Address
	planned := reserved.Next()
	set(t, r.Stack, "pools.control.addresses", planned.String())

	out := newOutput(t)
	warning := fmt.Sprintf(
		"pools.control.addresses: vms-control-1 is planned with another address than its guest agent reports: "+
			"%s (given: %s)", reserved, planned)

	_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
	require.NoError(t, err)
	assert.Contains(t, out.String(), warning)

	out = newOutput(t)
	_, err = r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
	require.NoError(t, err)
	assert.Contains(t, out.String(), warning)

	set(t, r.Stack, "pools.control.addresses", reserved.String())
	assert.NotContains(t, previewOf(t, r.Stack), "than its guest agent reports")

	// With reported addresses none has to be set, and the contract has none, until it is.
	set(t, r.Stack, "network.addressing", "reported")
	unset(t, r.Stack, "pools.control.addresses")
	assert.Empty(t, contractOf(t, upResult(t, r.Stack)).NodeIPMap)

	set(t, r.Stack, "pools.control.addresses", reserved.String())
	assert.Equal(t, map[string]string{"vms-control-1": reserved.String()}, contractOf(t, upResult(t, r.Stack)).NodeIPMap)
}
