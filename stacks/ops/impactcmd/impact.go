// Package impactcmd tells what an update would do to each node of a stack, from what a preview says: the program asks
// the nodes themselves, the providers say what becomes of the machines. The effects are decided elsewhere: those on a
// running node of Talos in components/rollout/talos/changes/node_change.go, by the rules of
// components/impact/effect.go.
package impactcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag/colors"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// Impact previews a stack. The preview itself goes to progress, its warnings come with the rows. The rows are there
// with an error, too: a preview that refuses something says what.
func Impact(ctx context.Context, stack auto.Stack, progress io.Writer) (rows []impact.NodeImpact, warnings []string,
	err error,
) {
	var (
		all  previewEvents
		seen = make(chan events.EngineEvent)
		done = make(chan error)
	)

	go func() {
		var errs []error
		for e := range seen {
			errs = append(errs, all.note(e))
		}

		done <- errors.Join(errs...)
	}()

	_, err = stack.Preview(ctx, optpreview.EventStreams(seen), optpreview.ProgressStreams(progress),
		optpreview.ErrorProgressStreams(progress))
	broken := <-done

	// The engine's error repeats all of the preview.
	if err != nil && len(all.errors) > 0 {
		err = errors.New(strings.Join(all.errors, "\n"))
	}

	return all.rows(), all.warnings, errors.Join(err, broken)
}

// previewEvents is what the events of a preview tell.
type previewEvents struct {
	nodes []*node // in the order of their appearance
	// reported is what the program says of nodes, restarts what it says of their VMs, labels of their labels and taints.
	reported, restarts, labels map[string]impact.NodeImpact
	// errors and warnings are those of the preview, each once.
	errors, warnings []string
}

// node is one node of the stack, as its resources tell.
type node struct {
	urn        string
	row        impact.NodeImpact
	vmid       float64
	machine    []string // what of its VM changes, as paths
	configured bool     // its configuration changes
}

func (s *previewEvents) note(e events.EngineEvent) error {
	switch {
	case e.Error != nil:
		return e.Error
	case e.DiagnosticEvent != nil:
		message := strings.TrimSpace(colors.Never.Colorize(e.DiagnosticEvent.Message))

		switch e.DiagnosticEvent.Severity {
		case "error":
			// That it failed is said by what made it fail.
			if message = strings.TrimPrefix(message, "Preview failed: "); message != "preview failed" {
				s.errors = appendOnce(s.errors, message)
			}
		case "warning":
			s.warnings = appendOnce(s.warnings, message)
		}

		return s.noteRow(e.DiagnosticEvent.Message)
	case e.ResourcePreEvent != nil:
		s.noteStep(resourceStep(e))
	}

	return nil
}

func appendOnce(messages []string, message string) []string {
	if message == "" || slices.Contains(messages, message) {
		return messages
	}

	return append(messages, message)
}

// noteRow notes what the program found out by asking a node.
func (s *previewEvents) noteRow(message string) error {
	row, found, err := impact.ParseMessage(message)
	if err != nil || !found {
		return err
	}

	if s.reported == nil {
		s.reported, s.restarts = map[string]impact.NodeImpact{}, map[string]impact.NodeImpact{}
		s.labels = map[string]impact.NodeImpact{}
	}

	switch {
	case row.VM:
		s.restarts[row.Node] = row
	case row.Labels:
		s.labels[row.Node] = row
	default:
		s.reported[row.Node] = row
	}

	return nil
}

// step is what is planned for one resource.
type step struct {
	op, kind, urn string
	inputs        map[string]any
	changes       []string // paths
}

func resourceStep(e events.EngineEvent) step {
	m := e.ResourcePreEvent.Metadata
	s := step{op: string(m.Op), kind: m.Type, urn: m.URN, changes: m.Diffs}

	if len(m.DetailedDiff) > 0 {
		s.changes = slices.Collect(maps.Keys(m.DetailedDiff))
	}

	if m.New != nil {
		s.inputs = m.New.Inputs
	} else if m.Old != nil {
		s.inputs = m.Old.Inputs
	}

	return s
}

func (s *previewEvents) noteStep(p step) {
	if p.kind == tokens.TalosNode || p.kind == tokens.K3sNode {
		n := &node{urn: p.urn}
		n.row.Node, _ = p.inputs["name"].(string)
		n.row.Pool, _ = p.inputs["pool"].(string)
		n.row.Role, _ = p.inputs["role"].(string)
		n.vmid, _ = p.inputs["vmid"].(float64)

		switch p.op {
		case "create":
			n.row.Effect = impact.EffectCreate
		case "delete":
			n.row.Effect, n.row.Why = impact.EffectRemove, "it is not in the configuration any more"
		default:
			n.row.Effect = impact.EffectNone
		}

		s.nodes = append(s.nodes, n)

		return
	}

	n := s.owner(p.urn)
	if n == nil || p.op == "same" {
		return
	}

	switch {
	case p.kind == tokens.VM && strings.Contains(p.op, "replace") && n.row.Effect == impact.EffectNone:
		n.row.Effect, n.row.Why = impact.EffectReplace, "its VM is recreated"
	case p.kind == tokens.VM && p.op == "update":
		n.machine = append(n.machine, p.changes...)
	case p.kind == tokens.Configuration && p.op == "update":
		n.configured = true
	}
}

// owner is the node that a resource belongs to: its name begins with the node's.
func (s *previewEvents) owner(urn string) *node {
	name := nameOf(urn)

	for _, suffix := range []string{tokens.VMSuffix, tokens.ConfigurationSuffix} {
		if of, ok := strings.CutSuffix(name, suffix); ok {
			if i := slices.IndexFunc(s.nodes, func(n *node) bool { return nameOf(n.urn) == of }); i >= 0 {
				return s.nodes[i]
			}
		}
	}

	return nil
}

func nameOf(urn string) string { return urn[strings.LastIndex(urn, "::")+2:] }

// rows are in plan order: control planes first, then by pool and VMID.
func (s *previewEvents) rows() []impact.NodeImpact {
	slices.SortStableFunc(s.nodes, func(a, b *node) int { return compare(a, b) })

	limits := impact.Limits{MaxUnavailable: 1}

	var rows []impact.NodeImpact

	for _, n := range s.nodes {
		row := n.row

		if reported, there := s.reported[row.Node]; there && row.Effect == impact.EffectNone {
			row, limits = reported, reported.Limits
		} else if n.configured && row.Effect == impact.EffectNone {
			row.Effect, row.Why = impact.EffectUnknown, "its configuration changes"
		}

		if labels := s.labels[row.Node]; len(labels.Settings) > 0 && row.Effect != impact.EffectReplace {
			row.Settings = slices.Concat(row.Settings, labels.Settings)

			if row.Effect == impact.EffectNone {
				row.Effect, row.Why = labels.Effect, labels.Why
			}
		}

		reported, there := s.restarts[row.Node]
		if there {
			row.Quorum, row.Refused = cmp.Or(row.Quorum, reported.Quorum), cmp.Or(row.Refused, reported.Refused)
			limits = reported.Limits
		}

		if row = n.restarted(row); there && !row.Effect.Down() {
			// The provider does not know what an earlier update has left to be done.
			row.Effect, row.Why = reported.Effect, reported.Why
		}

		rows = append(rows, row)
	}

	quorum(rows)
	impact.AssignOrder(rows, limits)

	return rows
}

// restarted adds what becomes of the machine.
func (n *node) restarted(row impact.NodeImpact) impact.NodeImpact {
	properties := proxmoxvm.Properties(n.machine)
	if len(properties) == 0 || row.Effect == impact.EffectReplace || row.Effect == impact.EffectRemove {
		return row
	}

	why := "VM: " + strings.Join(properties, ", ")

	if len(proxmoxvm.Restarts(n.machine)) > 0 {
		if !row.Effect.Down() {
			row.Effect = impact.EffectReboot
		}
	} else if row.Effect == impact.EffectNone {
		row.Effect = impact.EffectLive
	}

	if row.Why != "" {
		why = row.Why + "; " + why
	}

	row.Why = why

	return row
}

// quorum says what etcd is left with where control planes come, go, or are away: by the machines there are. Those that
// come are there before others leave.
func quorum(rows []impact.NodeImpact) {
	voters, created, removed := 0, 0, 0

	for _, r := range rows {
		if r.Role == string(spec.RoleControlPlane) && r.Effect != impact.EffectCreate {
			voters++
		}
	}

	for i, r := range rows {
		if r.Role == string(spec.RoleControlPlane) && r.Effect == impact.EffectCreate && voters > 0 {
			created++
			rows[i].Quorum = fmt.Sprintf("%d of %d, %d needed", voters+created, voters+created, etcd.QuorumSize(voters+created))
		}
	}

	for i, r := range rows {
		if r.Role != string(spec.RoleControlPlane) || r.Quorum != "" {
			continue
		}

		switch r.Effect {
		case impact.EffectReboot, impact.EffectUpgrade, impact.EffectReplace:
			rows[i].Quorum = etcd.QuorumText(voters)
		case impact.EffectRemove:
			removed++
			rows[i].Quorum = fmt.Sprintf("%d stay, %d needed", voters+created-removed, etcd.QuorumSize(voters+created))
		}
	}
}

func compare(a, b *node) int {
	if a.row.Role != b.row.Role {
		// "controlplane" is before "worker".
		return strings.Compare(a.row.Role, b.row.Role)
	}

	if a.row.Pool != b.row.Pool {
		return strings.Compare(a.row.Pool, b.row.Pool)
	}

	return int(a.vmid - b.vmid)
}
