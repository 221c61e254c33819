package vmidentity

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/tokens"
)

// TestCheckSetUp: a VM whose notes do not state its UUID is changed only where it is shown to be the one that its node
// was set up on. A refresh has taken its UUID into the state.
func TestCheckSetUp(t *testing.T) {
	const (
		live, other = "6c84fb90-12c4-11e1-840d-7b25c5ee775a", "110ec58a-a0f2-4ac4-8393-c866d813b8d1"
		refused     = "edge-agent-2 was set up on another VM than the state has now: nothing on VMID 502 (UUID " + live +
			", host pve) says that it was made for edge-agent-2"
		unknown = "could not determine whether edge-agent-2 was set up on VM 502 (host pve): the notes of the VM " +
			"do not state its UUID, and the node could not be queried: "
	)

	shows := func(uuid string) func() (string, error) { return func() (string, error) { return uuid, nil } }
	silent := func() (string, error) { return "", errors.New("connection refused") }
	setUp := func(uuid string) stateMachine { return stateMachine{setUp: true, setUpOn: uuid} }

	for name, c := range map[string]struct {
		notes string
		state stateMachine
		// shows is asked; nil: it must not be.
		shows  func() (string, error)
		change func(*plan.Plan, *Identities)
		dry    bool
		want   string
	}{
		"made by the program":                  {notes: Describe("K3s agent", live), state: setUp("")},
		"its notes state it in their own way":  {notes: "web\n" + notesUUID + live, state: setUp("")},
		"the node shows it":                    {notes: "web", state: setUp(""), shows: shows(live)},
		"the node shows another":               {state: setUp(""), shows: shows(other), want: refused},
		"the node shows another, in a preview": {state: setUp(""), shows: shows(other), dry: true, want: refused},
		"the node shows none":                  {state: setUp(""), shows: shows(""), want: unknown + "it shows no UUID. "},
		"the node is silent": {
			state: setUp(""), shows: silent, want: unknown + "connection refused. Nothing is done to the VM. If it " +
				"is the VM of the node, start it, or add the line 'VM UUID " + live + "' to its notes (if it has " +
				"none: 'qm set 502 " +
				"--description \"VM UUID " + live + "\"' on host pve), then run the command again. If it is not, give it " +
				"another VMID and run the command again with --refresh",
		},
		"the node is silent, in a preview": {state: setUp(""), shows: silent, dry: true},
		"the state has it":                 {state: setUp(live)},
		"the state has another":            {state: setUp(other), want: refused},
		"nothing was set up":               {},
		"nothing is left of it in a state that is torn down": {
			change: func(p *plan.Plan, _ *Identities) { p.Teardown = true }, shows: shows(other), want: refused,
		},
		"a state that is not known": {
			change: func(_ *plan.Plan, i *Identities) { i.unread = errors.New("no") }, shows: shows(live),
		},
		"set up by others": {
			state: setUp(""), change: func(_ *plan.Plan, i *Identities) { i.SetUpOn = nil },
		},
		"replaced": {
			state: setUp(other), change: func(p *plan.Plan, _ *Identities) { p.Replace = []string{"edge-agent-2"} },
		},
		"made by this run": {
			state: setUp(other), change: func(_ *plan.Plan, i *Identities) { i.creating[502] = true },
		},
		"its node leaves": {
			state: setUp(""), change: func(p *plan.Plan, _ *Identities) { p.Pools = nil },
		},
		"its node leaves, and the state has another": {
			state: setUp(other), change: func(p *plan.Plan, _ *Identities) { p.Pools = nil }, want: refused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Cluster: "edge", Distribution: "k3s", NodeTimeout: time.Second, Pools: []plan.PlannedPool{
				{Nodes: []plan.Node{{Name: "edge-agent-2", VMID: 502}}},
			}}
			found := Found{
				VM: proxmoxapi.VM{ID: 502, Name: "edge-agent-2", Host: "pve", Tags: OwnerTags(p)},
				Config: proxmoxapi.VMConfig{
					UUID: live, Settings: map[string]string{"description": c.notes},
				},
			}
			asked := 0

			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				i := NewIdentities(ctx, p, &fakeProxmox{machine: &found.VM, config: found.Config},
					func(int) (Found, bool) { return found, true })
				i.SetUpOn = func(context.Context, plan.Node) (string, error) {
					asked++

					return c.shows()
				}
				c.state.Machine = Machine{VMID: 502, Name: "edge-agent-2", UUID: live, Tags: OwnerTags(p)}
				i.reads, i.state = true, map[string]stateMachine{"edge-agent-2-vm": c.state}
				i.once.Do(func() { close(i.read) })

				if c.change != nil {
					c.change(p, i)
				}

				machine := resource.NewPropertyMapFromMap(map[string]any{
					"vmId": 502, "name": "edge-agent-2", "smbios": map[string]any{"uuid": live},
					"tags": []any{"edge", "k3s"},
				})
				firewall := resource.NewPropertyMapFromMap(map[string]any{"vmId": 502})

				// The VM changes, then its firewall is made, changed and deleted.
				for _, err := range []error{
					i.Check(t.Context(), &pulumi.ResourceHookArgs{OldInputs: machine, NewInputs: machine}),
					i.CheckCompanion(t.Context(), &pulumi.ResourceHookArgs{NewInputs: firewall}),
					i.CheckCompanion(t.Context(), &pulumi.ResourceHookArgs{OldInputs: firewall, NewInputs: firewall}),
					i.CheckCompanion(t.Context(), &pulumi.ResourceHookArgs{OldInputs: firewall}),
				} {
					if c.want == "" {
						assert.NoError(t, err)
					} else {
						assert.ErrorContains(t, err, c.want)
					}
				}

				return nil
			}, pulumi.WithMocks("p", "s", noResources{}), func(i *pulumi.RunInfo) { i.DryRun = c.dry }))

			switch {
			case c.shows == nil:
				assert.Zero(t, asked)
			case c.want == "" || c.want == refused:
				assert.Equal(t, 1, asked, "once for all")
			}
		})
	}
}

// aState is what the engine tells of a state.
type aState map[string]any

func (aState) NewResource(pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	return "", nil, errors.New("no resource is made")
}

func (s aState) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return resource.NewPropertyMapFromMap(map[string]any{"outputs": map[string]any(s)}), nil
}

// TestReadState: the state has what was set up on a VM, and of K3s on which machine.
func TestReadState(t *testing.T) {
	const urn = "urn:pulumi:dev::talos-proxmox::"

	kept := func(token string, outputs map[string]any) map[string]any {
		return map[string]any{"type": token, "outputs": outputs}
	}
	joined := func(uuid any) map[string]any {
		return map[string]any{"input": map[string]any{"uuid": uuid, "version": "v1"}}
	}

	state := aState{
		urn + tokens.VM + "::a-vm":                kept(tokens.VM, map[string]any{"vmId": 401.0}),
		urn + tokens.Configuration + "::a-config": kept(tokens.Configuration, map[string]any{}),
		urn + tokens.VM + "::b-vm":                kept(tokens.VM, map[string]any{"vmId": 402.0}),
		urn + tokens.Stash + "::b-joined":         kept(tokens.Stash, joined("6c84fb90-12c4-11e1-840d-7b25c5ee775a")),
		urn + tokens.VM + "::c-vm":                kept(tokens.VM, map[string]any{"vmId": 403.0}),
		urn + tokens.Stash + "::c-joined":         kept(tokens.Stash, joined(nil)),
		urn + tokens.VM + "::d-vm":                kept(tokens.VM, map[string]any{"vmId": 404.0}),
		urn + tokens.Stash + "::d-identity":       kept(tokens.Stash, joined("x")),
		urn + tokens.TalosNode + "::a":            kept(tokens.TalosNode, map[string]any{ImportedOutput: true}),
		urn + tokens.K3sNode + "::b":              kept(tokens.K3sNode, map[string]any{"name": "b"}),
		urn + tokens.K3sNode + "::c":              kept(tokens.K3sNode, map[string]any{ImportedOutput: true}),
	}

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		found, records, _, err := NewIdentities(ctx, &plan.Plan{}, nil, nil).readState()
		require.NoError(t, err)
		assert.Contains(t, records, "d-identity")
		assert.NotContains(t, records, "d-vm")

		for name, want := range map[string]stateMachine{
			"a-vm": {setUp: true, imported: true}, "b-vm": {setUp: true, setUpOn: "6c84fb90-12c4-11e1-840d-7b25c5ee775a"},
			"c-vm": {setUp: true, imported: true}, "d-vm": {},
		} {
			assert.Equal(t, want.setUp, found[name].setUp, name)
			assert.Equal(t, want.setUpOn, found[name].setUpOn, name)
			assert.Equal(t, want.imported, found[name].imported, name)
			assert.NotZero(t, found[name].VMID, name)
		}

		return nil
	}, pulumi.WithMocks("talos-proxmox", "dev", state)))
}
