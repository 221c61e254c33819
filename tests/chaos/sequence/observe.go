package sequence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/components/impact"
	"talos-proxmox/tests/lab/talos"
)

// observation is what the lab has seen since a step began.
type observation struct {
	c        *cluster
	since    time.Time
	machines map[string]string
	forecast Forecast
	to       Config
	dead     string

	mu sync.Mutex
	// cut are the times in which a member of etcd was cut off while the update ran.
	cut []span
}

type span struct {
	node     string
	from, to time.Time
}

// decided is how long ago the program may have checked the cluster last when a node goes down: an update of a VM
// makes some calls before it restarts the VM.
const decided = 2 * time.Second

func (c *cluster) observe(s Step, dead string) (*observation, error) {
	machines, err := c.machines()

	return &observation{c: c, since: time.Now(), machines: machines, forecast: s.Forecast, to: s.To, dead: dead}, err
}

// away notes that a member of etcd is cut off, until the result is called.
func (o *observation) hide(node string) (show func()) {
	from := time.Now()

	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()

		o.cut = append(o.cut, span{node, from, time.Now()})
	}
}

// did tells whether something was done to any node.
func (o *observation) did(kind talos.EventKind) bool {
	return slices.ContainsFunc(o.c.r.Talos.Events(o.since), func(h talos.Event) bool { return h.Kind == kind })
}

// happened is what has become of each node so far.
func (o *observation) happened() (map[string]Effect, error) {
	now, err := o.c.machines()
	if err != nil {
		return nil, err
	}

	did := map[string][]talos.EventKind{}
	for _, h := range o.c.r.Talos.Events(o.since) {
		did[h.Node] = append(did[h.Node], h.Kind)
	}

	found := map[string]Effect{}

	for name, was := range o.machines {
		is, there := now[name]
		has := func(d talos.EventKind) bool { return slices.Contains(did[name], d) }

		switch {
		case !there:
			found[name] = Remove
		case is != was:
			found[name] = Replace
		case has(talos.Upgraded):
			found[name] = Upgrade
		case has(talos.Rebooted), has(talos.WasShutDown):
			found[name] = Reboot
		case has(talos.Applied), has(talos.Staged):
			found[name] = Live
		default:
			found[name] = None
		}
	}

	for name := range now {
		if _, was := o.machines[name]; !was {
			found[name] = Create
		}
	}

	return found, nil
}

// compareTable holds the preview's table against the model.
func (o *observation) compareTable(rows []impact.NodeImpact) error {
	table := map[string]Effect{}
	for _, row := range rows {
		table[row.Node] = Effect(row.Effect)
	}

	if diff := cmp.Diff(o.forecast.Effects, table); diff != "" {
		for _, row := range rows {
			diff += fmt.Sprintf("  %s\n", row)
		}

		return &Disagreement{fmt.Sprintf("the table does not say what the change does (-does +table):\n%s", diff)}
	}

	return nil
}

// compareDone holds that what was foretold has happened, and nothing else.
func (o *observation) compareDone() error {
	happened, err := o.happened()
	if err != nil {
		return err
	}

	if diff := cmp.Diff(o.forecast.Effects, happened); diff != "" {
		return &Disagreement{fmt.Sprintf("something else happened than was foretold (-foretold +happened):\n%s%s", diff,
			o.story())}
	}

	return nil
}

// partly are the effects that a node may have suffered while the change is under way.
var partly = map[Effect][]Effect{
	None: {None}, Live: {None, Live}, Reboot: {None, Live, Reboot}, Upgrade: {None, Live, Reboot, Upgrade},
	Create: {Create},
	Remove: {None, Remove}, Replace: {None, Remove, Replace},
}

// compareSoFar holds that nothing has happened that was not foretold.
func (o *observation) compareSoFar() error {
	happened, err := o.happened()
	if err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(happened)) {
		if !slices.Contains(partly[o.forecast.Effects[name]], happened[name]) {
			return &Disagreement{fmt.Sprintf("%s: %s was foretold, and %s happened%s", name, o.forecast.Effects[name],
				happened[name], o.story())}
		}
	}

	return nil
}

// compareNothing holds that nothing has happened to any node.
func (o *observation) compareNothing() error {
	happened, err := o.happened()
	if err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(happened)) {
		if happened[name] != None {
			return fmt.Errorf("%s: %s happened, and nothing may%s", name, happened[name], o.story())
		}
	}

	return nil
}

// compareRefused holds that of what was refused nothing has happened that takes a node down.
func (o *observation) compareRefused() error {
	happened, err := o.happened()
	if err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(happened)) {
		foretold := o.forecast.Effects[name]
		if is := happened[name]; is != None && (is != Live || foretold == None || foretold == Unknown) {
			return fmt.Errorf("%s: %s happened, though the change was refused%s", name, is, o.story())
		}
	}

	return nil
}

// story is what the lab has noted.
func (o *observation) story() string {
	var b strings.Builder

	for _, h := range o.c.r.Talos.Events(o.since) {
		fmt.Fprintf(&b, "\n  %s %s", h.Time.Sub(o.since).Round(time.Millisecond), h)
	}

	for _, q := range o.c.r.Talos.Quorum(o.since) {
		fmt.Fprintf(&b, "\n  %s etcd: %d of %d, %s", q.Time.Sub(o.since).Round(time.Millisecond), q.Healthy, q.Voters,
			q.Cause)
	}

	for _, d := range o.c.r.Talos.Outages(o.since) {
		fmt.Fprintf(&b, "\n  %s to %s %s is down: %s", d.From.Sub(o.since).Round(time.Millisecond),
			d.To.Sub(o.since).Round(time.Millisecond), d.Node, d.Why)
	}

	return b.String()
}

// evaluate holds what must be so at every instant.
func (o *observation) evaluate(m *Model) error {
	return errors.Join(o.evaluateQuorum(), o.evaluateOutages(), o.evaluateVersions(), o.c.r.Lab.Journal().Unknown())
}

func (o *observation) evaluateQuorum() error {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, q := range o.c.r.Talos.Quorum(o.since) {
		if q.Margin() < 0 && !o.forecast.StandsStill && !o.cameAfter(q) {
			return fmt.Errorf("etcd was below its quorum: %d of %d members were healthy (%s)%s", q.Healthy, q.Voters, q.Cause,
				o.story())
		}
	}

	return nil
}

// cameAfter tells whether etcd is below its quorum because a member was cut off when another one was down already. No
// program could have known. One that takes a control plane down while a member is cut off is to blame.
func (o *observation) cameAfter(q talos.Quorum) bool {
	i := slices.IndexFunc(o.cut, func(s span) bool { return !q.Time.Before(s.from) && !q.Time.After(s.to) })
	if i < 0 {
		return false
	}

	s := o.cut[i]

	return !slices.ContainsFunc(o.c.r.Talos.Outages(s.from), func(d talos.Outage) bool {
		return isControl(d.Node) && d.Node != s.node && d.From.After(s.from.Add(decided)) && !d.From.After(q.Time)
	})
}

// lowest is the lowest margin of etcd; nil where nothing of it changed, or where others than the program had a part in
// it.
func (o *observation) lowest() *int {
	q, changed := o.c.r.Talos.LowestQuorum(o.since)
	if !changed || o.forecast.StandsStill || len(o.cut) > 0 {
		return nil
	}

	return new(q.Margin())
}

func (o *observation) evaluateOutages() error {
	var controls, workers []talos.Outage

	for _, d := range o.c.r.Talos.Outages(o.since) {
		switch {
		case o.forecast.Effects[d.Node] == Remove: // it is not to come back
		case d.From.Before(o.since) && d.Node != o.dead: // it was removed before
		case isControl(d.Node):
			controls = append(controls, d)
		default:
			workers = append(workers, d)
		}
	}

	if most, at := talos.MostDown(controls); most > 1 {
		return fmt.Errorf("%d control planes were down at once, at %s%s", most, at.Sub(o.since), o.story())
	}

	if most, at := talos.MostDown(workers); most > o.to.MaxUnavailable {
		return fmt.Errorf("%d workers were down at once, at %s, and %d may%s", most, at.Sub(o.since), o.to.MaxUnavailable,
			o.story())
	}

	return nil
}

func (o *observation) evaluateVersions() error {
	for _, v := range o.c.r.Talos.Violations(o.since) {
		return errors.New(v.Text)
	}

	return nil
}

// Disagreement is a difference between the table, the model and what the lab has seen.
type Disagreement struct{ text string }

func (d *Disagreement) Error() string { return d.text }

// present holds that the nodes there are are those that were asked for, and run what they were to run.
func (c *cluster) present(m *Model) error {
	machines, err := c.machines()
	if err != nil {
		return err
	}

	if diff := cmp.Diff(slices.Sorted(maps.Keys(m.Asked.nodes())), slices.Sorted(maps.Keys(machines))); diff != "" {
		return fmt.Errorf("other machines are there than were asked for (-asked for +there):\n%s", diff)
	}

	for _, s := range c.r.Talos.Nodes() {
		if want := m.Running[s.Name].Talos; s.Name != m.Dead && s.Version != want {
			return fmt.Errorf("%s runs Talos %s, and should run %s", s.Name, s.Version, want)
		}
	}

	return nil
}

// pending are the operations that the state has as under way.
func (c *cluster) pending(ctx context.Context) ([]string, error) {
	exported, err := c.r.Stack.Export(ctx)
	if err != nil {
		return nil, err
	}

	var d apitype.DeploymentV3
	if err := json.Unmarshal(exported.Deployment, &d); err != nil {
		return nil, err
	}

	var all []string
	for _, o := range d.PendingOperations {
		all = append(all, string(o.Type)+" "+o.Resource.URN.Name())
	}

	return all, nil
}
