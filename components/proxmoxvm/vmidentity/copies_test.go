package vmidentity

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// TestNoCopy: a restored backup runs in the place of a VM that is off.
func TestNoCopy(t *testing.T) {
	p := &plan.Plan{Cluster: "c", Distribution: "talos"}
	own := proxmoxapi.VM{ID: 401, Name: "c-control-1", Host: "pve", Tags: OwnerTags(p), Stopped: true}
	running := own
	running.Stopped = false

	copied := proxmoxapi.VM{ID: 9401, Name: "c-control-1", Host: "pve2"}
	off, away, other, unheard := copied, copied, copied, copied
	off.ID, off.Stopped, away.Unreachable, other.Name = 9402, true, true, "web"
	unheard.Name, unheard.Tags = "", OwnerTags(p)

	const refused = "c-control-1 (VMID 401) is off, and VM 9401 on host pve2 runs with its SMBIOS UUID"

	for name, c := range map[string]struct {
		vm     proxmoxapi.VM
		others []proxmoxapi.VM
		want   string
	}{
		"no copy":                       {vm: own},
		"a copy that runs":              {vm: own, others: []proxmoxapi.VM{copied}, want: refused},
		"a copy without a name yet":     {vm: own, others: []proxmoxapi.VM{unheard}, want: refused},
		"a copy that is off":            {vm: own, others: []proxmoxapi.VM{off}},
		"on a host that is down":        {vm: own, others: []proxmoxapi.VM{away}},
		"a VM of another name":          {vm: own, others: []proxmoxapi.VM{other}},
		"the VM runs, and so does one":  {vm: running, others: []proxmoxapi.VM{copied}},
		"the copy is read after others": {vm: own, others: []proxmoxapi.VM{off, other, copied}, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			config := proxmoxapi.VMConfig{UUID: "6c84fb90-12c4-11e1-840d-7b25c5ee775a"}
			i := NewIdentities(nil, p, &fakeProxmox{machine: &c.vm, config: config, others: c.others}, nil)

			err := i.checkNoCopy(t.Context(), Found{VM: c.vm, Config: config})
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}
		})
	}
}

// TestLeavingControlPlanes: those that have left the plan, and are not declared dead.
func TestLeavingControlPlanes(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", Distribution: "talos", ForceRemove: []string{"c-control-3", "c-control-5"},
		Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 401}}}},
	}
	vm := func(id int, name string, tags ...string) proxmoxapi.VM {
		return proxmoxapi.VM{ID: id, Name: name, Tags: append(tags, OwnerTags(p)...)}
	}

	proxmox := &fakeProxmox{others: []proxmoxapi.VM{
		vm(401, "c-control-1", "controlplane"), vm(402, "c-control-2", "controlplane"),
		vm(403, "c-control-3", "controlplane"), vm(501, "c-worker-1", "worker"),
		// Its host is down for long; and a template.
		vm(405, "", "controlplane"),
		{ID: 9000, Template: true, Tags: append(OwnerTags(p), "controlplane")},
		{ID: 404, Name: "d-control-1", Tags: []string{"d", "talos", "controlplane"}},
	}}
	leaving := func() (labels []string) {
		found, err := NewIdentities(nil, p, proxmox, nil).LeavingControlPlanes(t.Context())
		require.NoError(t, err)

		for _, v := range found {
			labels = append(labels, v.Label())
		}

		return labels
	}

	assert.Equal(t, []string{"c-control-2"}, leaving())

	p.ForceRemove = []string{"c-control-3"}
	assert.Len(t, leaving(), 2, "the only one that is declared dead has a VM with its name")
}

// TestUnrecordedNode: a run was cut off after the node of a VM had joined, and the node leaves the plan.
func TestUnrecordedNode(t *testing.T) {
	const uuid = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"

	p := &plan.Plan{Cluster: "c", Distribution: "talos"}
	found := Found{
		VM: proxmoxapi.VM{ID: 402, Name: "c-control-2", Host: "pve", Tags: OwnerTags(p)}, Config: proxmoxapi.VMConfig{UUID: uuid},
	}
	others := stateMachine{Machine: Machine{VMID: 401}, setUp: true}

	for name, c := range map[string]struct {
		state  map[string]stateMachine
		joined string
		fails  error
		dead   bool
		dry    bool
		want   string
	}{
		"it has joined": {
			state: map[string]stateMachine{"a": others, "b": {Machine: Machine{VMID: 402}}}, joined: "c-control-2",
			want: "its node c-control-2 has joined the cluster",
		},
		"it has not": {state: map[string]stateMachine{"a": others, "b": {Machine: Machine{VMID: 402}}}},
		"the state has that it was set up": {
			state: map[string]stateMachine{"a": others, "b": {Machine: Machine{VMID: 402}, setUp: true}}, joined: "c-control-2",
		},
		"there is no cluster yet": {state: map[string]stateMachine{"b": {Machine: Machine{VMID: 402}}}, joined: "c-control-2"},
		"it is dead": {
			state: map[string]stateMachine{"a": others, "b": {Machine: Machine{VMID: 402}}}, joined: "c-control-2", dead: true,
		},
		"Kubernetes does not answer": {
			state: map[string]stateMachine{"a": others, "b": {Machine: Machine{VMID: 402}}}, fails: errors.New("refused"),
			want: "could not determine whether it has joined the cluster",
		},
		"Kubernetes does not answer, in a preview": {
			state: map[string]stateMachine{"a": others, "b": {Machine: Machine{VMID: 402}}}, fails: errors.New("refused"), dry: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				with := *p
				if c.dead {
					with.ForceRemove = []string{"c-control-2"}
				}

				i := NewIdentities(ctx, &with, &fakeProxmox{machine: &found.VM, config: found.Config}, nil)
				i.Joined = func(_ context.Context, asked string) (string, error) {
					assert.Equal(t, uuid, asked)

					return c.joined, c.fails
				}
				i.reads, i.state = true, c.state
				i.once.Do(func() { close(i.read) })

				err := i.Check(t.Context(), &pulumi.ResourceHookArgs{OldInputs: resource.NewPropertyMapFromMap(map[string]any{
					"vmId": 402, "name": "c-control-2", "smbios": map[string]any{"uuid": uuid}, "tags": []any{"c", "talos"},
				})})
				if c.want == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, c.want)
				}

				return nil
			}, pulumi.WithMocks("p", "s", noResources{}), func(i *pulumi.RunInfo) { i.DryRun = c.dry }))
		})
	}
}

// logged notes what a program warns of.
type logged struct {
	pulumi.Log

	warnings []string
}

func (l *logged) Warn(message string, _ *pulumi.LogArgs) error {
	l.warnings = append(l.warnings, message)

	return nil
}

// TestWarnUnrecorded: VMs that neither the plan nor the state has.
func TestWarnUnrecorded(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", Distribution: "talos", Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 401, Name: "c-control-1"}}}},
	}
	vm := func(id int, name string) proxmoxapi.VM {
		return proxmoxapi.VM{ID: id, Name: name, Host: "pve", Tags: OwnerTags(p)}
	}
	away := vm(504, "c-worker-4")
	away.Unreachable = true

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		log := &logged{}
		ctx.Log = log
		i := NewIdentities(ctx, p, &fakeProxmox{others: []proxmoxapi.VM{
			vm(401, "c-control-1"), vm(501, "c-worker-1"), vm(502, "c-worker-2"), away, {ID: 601, Name: "web"},
		}}, nil)
		i.state = map[string]stateMachine{"c-worker-1-vm": {Machine: Machine{VMID: 501}}}
		i.once.Do(func() { close(i.read) })

		require.NoError(t, i.WarnUnrecorded())
		require.Len(t, log.warnings, 1)
		assert.Contains(t, log.warnings[0], "VM 502 (c-worker-2) on host pve has the tags of this cluster")

		return nil
	}, pulumi.WithMocks("p", "s", noResources{})))
}

// unreadable is a state that the engine cannot read.
type unreadable struct{ aState }

func (unreadable) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return nil, errors.New("the backend does not answer")
}

// TestUnreadStateDeletesNothing: a released cluster has no hooks in its state, and whether it is one is not known.
func TestUnreadStateDeletesNothing(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", Distribution: "talos", Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 401, Name: "c-control-1"}}}},
	}
	planned := proxmoxapi.VM{ID: 401, Name: "c-control-1", Tags: OwnerTags(p)}

	for name, c := range map[string]struct {
		others  []proxmoxapi.VM
		replace []string
		want    string
	}{
		"nothing leaves":     {},
		"a node leaves":      {others: []proxmoxapi.VM{{ID: 501, Name: "c-worker-1", Tags: OwnerTags(p)}}, want: "(given: c-worker-1)"},
		"a node is replaced": {replace: []string{"c-control-1"}, want: "(given: c-control-1)"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				with := *p
				with.Replace = c.replace

				err := NewIdentities(ctx, &with, &fakeProxmox{machine: &planned, others: c.others}, nil).CheckReleased()
				if c.want == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, c.want)
					assert.ErrorContains(t, err, "the backend does not answer")
				}

				return nil
			}, pulumi.WithMocks("p", "s", unreadable{})))
		})
	}
}

// TestCheckReleased: the state of a cluster that was released or imported has no hooks that run before a deletion.
func TestCheckReleased(t *testing.T) {
	const first = "cannot take effect in the first update after one with lifecycle.teardown, or after an import: "

	p := &plan.Plan{
		Cluster: "c", Distribution: "talos",
		Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 401, Name: "c-control-1"}}}},
	}
	vm := func(id int, name string) stateMachine {
		return stateMachine{Machine: Machine{VMID: id, Name: name, Tags: OwnerTags(p)}}
	}
	replaced, imported := vm(401, "c-control-1"), vm(401, "c-control-1")
	replaced.replaced, imported.imported = true, true

	for name, c := range map[string]struct {
		state         stateMachine
		kept          bool // not released
		replace, dead []string
		want, warned  string
	}{
		"nothing is deleted": {state: vm(401, "c-control-1")},
		"a node leaves":      {state: vm(501, "c-worker-1"), want: "pools: the removal of a node " + first},
		"a node is replaced": {
			state: vm(401, "c-control-1"), replace: []string{"c-control-1"}, want: "lifecycle.replace: " + first,
		},
		"a node is replaced that was imported": {
			state: imported, kept: true, replace: []string{"c-control-1"}, want: "lifecycle.replace: " + first,
		},
		"a node is replaced that was not": {state: vm(401, "c-control-1"), kept: true, replace: []string{"c-control-1"}},
		"a node was replaced":             {state: replaced, replace: []string{"c-control-1"}},
		"a dead node is replaced": {
			state: vm(401, "c-control-1"), replace: []string{"c-control-1"}, dead: []string{"c-control-1"},
			warned: "c-control-1 is deleted, and the state has no hooks yet that take its node out of the cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				log := &logged{}
				ctx.Log = log

				with := *p
				with.Replace, with.ForceRemove = c.replace, c.dead

				i := NewIdentities(ctx, &with, &fakeProxmox{}, nil)
				i.released, i.state = !c.kept, map[string]stateMachine{"vm": c.state}
				i.once.Do(func() { close(i.read) })

				if err := i.CheckReleased(); c.want == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, c.want)
				}

				assert.Equal(t, c.warned != "", len(log.warnings) == 1 && strings.HasPrefix(log.warnings[0], c.warned))

				return nil
			}, pulumi.WithMocks("p", "s", noResources{})))
		})
	}
}
