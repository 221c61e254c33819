package impactcmd

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/tokens"
)

func event(op apitype.OpType, kind, name string, inputs map[string]any, diffs ...string) events.EngineEvent {
	var e events.EngineEvent
	e.ResourcePreEvent = &apitype.ResourcePreEvent{Metadata: apitype.StepEventMetadata{
		Op: op, Type: kind, URN: "urn:pulumi:s::p::t::" + name, Diffs: diffs,
		New: &apitype.StepEventStateMetadata{Inputs: inputs},
	}}

	return e
}

// TestRows: what providers say of machines and what the program says of nodes becomes one table, in plan order.
func TestRows(t *testing.T) {
	var s previewEvents

	node := func(op apitype.OpType, resource, name, role string, vmid float64) {
		inputs := map[string]any{"name": name, "pool": "p-" + role, "role": role, "vmid": vmid}
		require.NoError(t, s.note(event(op, tokens.TalosNode, resource, inputs)))
	}

	node("same", "x-worker-2", "w-2", "worker", 502)
	node("same", "x-worker-1", "w-1", "worker", 501)
	node("same", "x-worker-4", "w-4", "worker", 504)
	node("create", "x-worker-3", "w-3", "worker", 503)
	node("same", "x-control-1", "c-1", "controlplane", 401)
	node("same", "x-control-2", "c-2", "controlplane", 402)
	node("same", "x-control-3", "c-3", "controlplane", 403)
	node("same", "x-control-4", "c-4", "controlplane", 404)
	node("delete", "x-control-5", "c-5", "controlplane", 405)
	node("create", "x-control-6", "c-6", "controlplane", 406)
	node("delete", "x-worker-5", "w-5", "worker", 505)
	node("delete", "x-worker-6", "w-6", "worker", 506)
	node("same", "x-worker-7", "w-7", "worker", 507)

	message := func(row impact.NodeImpact) (e events.EngineEvent) {
		text, err := row.Message()
		require.NoError(t, err)

		e.DiagnosticEvent = &apitype.DiagnosticEvent{Message: "<{%reset%}>" + text + "<{%reset%}>\n"}

		return e
	}
	limits := impact.Limits{MaxUnavailable: 2}
	upgrade := message(impact.NodeImpact{
		Node: "c-1", Pool: "p-controlplane", Role: "controlplane", Effect: impact.EffectUpgrade, Quorum: "4 of 5, 3 needed",
		Why: "W", Limits: limits,
	})
	pending := message(impact.NodeImpact{
		Node: "w-7", Pool: "p-worker", Role: "worker", Effect: impact.EffectReboot,
		Why: "VM: memory, since an earlier update", Limits: limits, VM: true,
	})
	restart := message(impact.NodeImpact{
		Node: "c-2", Pool: "p-controlplane", Role: "controlplane", Effect: impact.EffectReboot, Quorum: "3 of 4, 3 needed",
		Refused: "R", Limits: limits, VM: true,
	})
	grown := event("update", tokens.VM, "x-worker-2-vm", nil, "disks")
	grown.ResourcePreEvent.Metadata.DetailedDiff = map[string]apitype.PropertyDiff{"disks[0].size": {}, "tags": {}}

	for _, e := range []events.EngineEvent{
		event("same", tokens.VM, "x-control-1-vm", nil), event("update", tokens.Configuration, "x-control-1-config", nil), upgrade,
		event("update", tokens.VM, "x-control-2-vm", nil, "memory", "cpu"), restart, grown,
		event("replace", tokens.VM, "x-control-3-vm", nil), event("update", tokens.Configuration, "x-control-4-config", nil),
		event("update", tokens.VM, "x-worker-1-vm", nil, "tags"), event("create", tokens.VM, "x-worker-3-vm", nil),
		event("update", tokens.VM, "x-worker-4-vm", nil, "timeoutClone"), pending,
	} {
		require.NoError(t, s.note(e))
	}

	var found []string
	for _, r := range s.rows() {
		found = append(found, r.Node+" "+string(r.Effect)+" "+string(rune('0'+r.Order))+" "+r.Quorum+" | "+r.Why+r.Refused)
	}

	assert.Equal(t, []string{
		"c-1 upgrade 1 4 of 5, 3 needed | W",
		"c-2 reboot 2 3 of 4, 3 needed | VM: cpu, memoryR",
		"c-3 replace 3 4 of 5, 3 needed | its VM is recreated",
		"c-4 unknown 0  | its configuration changes",
		"c-5 remove 5 5 stay, 4 needed | it is not in the configuration any more",
		"c-6 create 0 6 of 6, 4 needed | ",
		"w-1 live 0  | VM: tags",
		"w-2 live 0  | VM: disks, tags",
		"w-3 create 0  | ",
		"w-4 none 0  | ",
		"w-5 remove 6  | it is not in the configuration any more",
		"w-6 remove 6  | it is not in the configuration any more",
		"w-7 reboot 4  | VM: memory, since an earlier update",
	}, found)
}

// TestLabelRows: what the program does to labels and taints is added to whatever else happens to a node.
func TestLabelRows(t *testing.T) {
	t.Parallel()

	var s previewEvents

	for _, name := range []string{"a", "b", "c"} {
		op := apitype.OpSame
		if name == "c" {
			op = "create"
		}

		require.NoError(t, s.note(event(op, tokens.TalosNode, "x-"+name, map[string]any{
			"name": name, "pool": "p", "role": "worker", "vmid": 500.0,
		})))
	}

	label, image := impact.Setting{Path: "labels.tier", After: "db"}, impact.Setting{Path: "machine.x", After: "y"}

	for _, row := range []impact.NodeImpact{
		{Node: "a", Effect: impact.EffectLive, Why: "labels and taints", Settings: []impact.Setting{label}, Labels: true},
		{Node: "b", Effect: impact.EffectLive, Why: "labels and taints", Settings: []impact.Setting{label}, Labels: true},
		{
			Node: "b", Effect: impact.EffectReboot, Why: "W", Settings: []impact.Setting{image},
			Limits: impact.Limits{MaxUnavailable: 1},
		},
	} {
		text, err := row.Message()
		require.NoError(t, err)

		var e events.EngineEvent
		e.DiagnosticEvent = &apitype.DiagnosticEvent{Message: text}
		require.NoError(t, s.note(e))
	}

	var rows []impact.NodeImpact
	for _, row := range s.rows() {
		rows = append(rows, impact.NodeImpact{Node: row.Node, Effect: row.Effect, Why: row.Why, Settings: row.Settings})
	}

	assert.Equal(t, []impact.NodeImpact{
		{Node: "a", Effect: impact.EffectLive, Why: "labels and taints", Settings: []impact.Setting{label}},
		{Node: "b", Effect: impact.EffectReboot, Why: "W", Settings: []impact.Setting{image, label}},
		{Node: "c", Effect: impact.EffectCreate},
	}, rows)
}
