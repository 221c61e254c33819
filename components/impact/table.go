package impact

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"talos-proxmox/components/spec"
)

// NodeImpact is what one node will suffer.
type NodeImpact struct {
	Node string `json:"node"`
	Pool string `json:"pool"`
	Role string `json:"role"`
	// Now and Wanted are what the node runs and is to run; empty where it is not known or makes no difference.
	Now    string `json:"now,omitempty"`
	Wanted string `json:"wanted,omitempty"`
	Effect Effect `json:"effect"`
	// Order is the turn in which the node is unavailable: nodes of one turn are at the same time. 0: it is not, or not in
	// a turn.
	Order int `json:"order,omitempty"`
	// Quorum is what is left of etcd meanwhile; empty where that does not change.
	Quorum string `json:"quorum,omitempty"`
	// Why says what is the reason.
	Why string `json:"why,omitempty"`
	// Refused is why the change will not be begun.
	Refused string `json:"refused,omitempty"`
	// Settings are what differs in the machine configuration, or of labels and taints.
	Settings []Setting `json:"settings,omitempty"`
	// Limits bound how many nodes are unavailable with it.
	Limits Limits `json:"limits"`
	// Kubernetes says that the node goes to another version of Kubernetes: one node after the other does, even where none
	// is down for it.
	Kubernetes bool `json:"kubernetes,omitempty"`
	// VM says that it is about a change of the node's VM, and knows nothing of what runs in it.
	VM bool `json:"vm,omitempty"`
	// Labels says that it is about labels and taints in Kubernetes, and knows of no other change.
	Labels bool `json:"labels,omitempty"`
}

// String is the row as a sentence.
func (r NodeImpact) String() string {
	s := r.Node + ": " + string(r.Effect)
	if r.Why != "" {
		s += ", for " + r.Why
	}

	if r.Quorum != "" {
		s += "; etcd meanwhile: " + r.Quorum
	}

	if r.Refused != "" {
		s += "; refused: " + r.Refused
	}

	return s
}

// Refuse notes why a change is refused, and returns that with the node's name; nil when it is not.
func (r *NodeImpact) Refuse(why error) error {
	if why == nil {
		return nil
	}

	r.Refused = why.Error()

	return fmt.Errorf("%s: %w", r.Node, why)
}

// Limits bound how many workers are unavailable at the same time.
type Limits struct {
	// MaxUnavailable is at least 1.
	MaxUnavailable int `json:"maxUnavailable"`
	// Canary lets the first of a pool go alone.
	Canary bool `json:"canary"`
}

// AssignOrder gives each node that goes down, or to another Kubernetes, its turn: control planes first, one by one,
// then workers; those that leave for good after all others. It shows what rollout.Limiter and the order of replacements
// do. The rows are in plan order.
func AssignOrder(rows []NodeImpact, limits Limits) {
	turn := 0
	turn = assignOrder(rows, limits, turn, func(r NodeImpact) bool { return r.Effect.Down() || r.Kubernetes })
	assignOrder(rows, Limits{MaxUnavailable: limits.MaxUnavailable}, turn,
		func(r NodeImpact) bool { return r.Effect == EffectRemove })
}

// assignOrder gives the turns after the last one to those whom something happens to, and returns the last.
func assignOrder(rows []NodeImpact, limits Limits, turn int, goes func(NodeImpact) bool) int {
	var workers []int

	for i, r := range rows {
		switch {
		case !goes(r):
		case r.Role == controlPlane:
			turn++
			rows[i].Order = turn
		default:
			workers = append(workers, i)
		}
	}

	begun := map[string]bool{} // pools whose canary has been

	for len(workers) > 0 {
		turn++

		var next []int

		for _, i := range workers {
			alone := limits.Canary && !begun[rows[i].Pool]
			if len(next) == limits.MaxUnavailable || alone &&
				slices.ContainsFunc(next, func(j int) bool { return rows[j].Pool == rows[i].Pool }) {
				continue
			}

			next = append(next, i)
		}

		for _, i := range next {
			rows[i].Order, begun[rows[i].Pool] = turn, true
		}

		workers = slices.DeleteFunc(workers, func(i int) bool { return rows[i].Order != 0 })
	}

	return turn
}

const controlPlane = string(spec.RoleControlPlane)

// Table writes the rows, and below them what differs in configurations. Nodes with the same differences are named
// together.
func Table(out io.Writer, rows []NodeImpact) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tROLE\tNOW\tWANTED\tEFFECT\tORDER\tQUORUM\tWHY")

	for _, r := range rows {
		why := r.Why
		if r.Refused != "" {
			why = "REFUSED: " + strings.ReplaceAll(r.Refused, "\n", "; ")
		}

		order := ""
		if r.Order > 0 {
			order = strconv.Itoa(r.Order)
		}

		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Node, r.Role, dash(r.Now), dash(r.Wanted), r.Effect, dash(order),
			dash(r.Quorum), dash(why))
	}

	if err := w.Flush(); err != nil {
		return err
	}

	var listed []string

	nodes := map[string][]string{}

	for _, r := range rows {
		if text := settingsText(r.Settings); text != "" {
			if nodes[text] == nil {
				listed = append(listed, text)
			}

			nodes[text] = append(nodes[text], r.Node)
		}
	}

	for _, text := range listed {
		if _, err := fmt.Fprintf(out, "\nConfiguration of %s:\n%s", strings.Join(nodes[text], ", "), text); err != nil {
			return err
		}
	}

	return nil
}

func settingsText(settings []Setting) string {
	var text strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&text, "  %s\n", s)
	}

	return text.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}

	return s
}
