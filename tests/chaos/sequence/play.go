package sequence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"

	"talos-proxmox/stacks/ops/impactcmd"
	"talos-proxmox/tests/chaos/faults"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
)

// tries is how often an update is run again before an operator would look closer.
const tries = 3

// play makes a change, with what goes wrong, and holds what came of it against the model and the table.
func (c *cluster) play(ctx context.Context, m *Model, s Step) (p Played, err error) {
	p = Played{Fault: s.Killed != "" || s.Fault.Kind != ""}

	if s.Killed != "" {
		if err := c.kill(ctx, m, s.Killed); err != nil {
			return p, err
		}
	}

	s.Forecast = m.Foresee(s.To)
	f := s.Forecast
	p.Step, p.Refused = s.String(), f.Refused

	o, err := c.observe(s, m.Dead)
	if err != nil {
		return p, err
	}

	defer func() { p.Lowest = o.lowest() }()

	if err := c.write(s.To); err != nil {
		return p, err
	}

	rows, _, err := impactcmd.Impact(ctx, c.r.Stack, c.log)

	switch {
	case f.Refused == Preview && err == nil:
		return p, fmt.Errorf("the preview allows what must be refused: %s", f.Why)
	case f.Refused == Preview:
	case err != nil:
		return p, fmt.Errorf("the preview: %w\n%s", err, c.log.Tail())
	default:
		if err := o.compareTable(rows); err != nil {
			return p, err
		}
	}

	if err := o.compareNothing(); err != nil {
		return p, fmt.Errorf("the preview has changed something: %w", err)
	}

	if f.Refused != "" {
		return p, errors.Join(c.refuse(ctx, m, s, o), c.noteStarted(m), c.settle(ctx, m))
	}

	if p.Again, err = c.carryOut(ctx, m, s, o); err != nil {
		return p, err
	}

	m.Done(s.To, f)

	if err := errors.Join(c.noteStarted(m), c.settle(ctx, m)); err != nil {
		return p, err
	}

	return p, errors.Join(o.evaluate(m), o.compareDone(), c.present(m))
}

// noteStarted notes that updates started a dead node. The provider stores started: false for a VM that it restarted,
// and the next update of that VM starts it where it is off.
func (c *cluster) noteStarted(m *Model) error {
	if m.Dead == "" {
		return nil
	}

	v, err := c.vm(m.Dead)
	if err == nil && v.Running {
		m.Dead = ""
	}

	return err
}

// refuse holds that the update is refused, and takes the change back. Where the update itself started the dead node
// that stood in the way, the change may be made.
func (c *cluster) refuse(ctx context.Context, m *Model, s Step, o *observation) error {
	f, dead := s.Forecast, m.Dead
	err := c.up(ctx)

	if err := c.noteStarted(m); err != nil {
		return err
	}

	if now := m.Foresee(s.To); err == nil && dead != m.Dead && now.Refused == "" {
		m.Done(s.To, now)

		return o.evaluate(m)
	}

	if err == nil {
		return fmt.Errorf("what must be refused went through: %s", f.Why)
	}

	// The refused update may have noted that the nodes of the list were replaced: they would be replaced again.
	m.Asked.Replace, m.Asked.Force = nil, nil

	if err := errors.Join(o.evaluate(m), c.write(m.Asked)); err != nil {
		return err
	}

	evaluate := o.compareRefused // what disrupts no node may have been applied
	if f.Refused == Preview {
		evaluate = o.compareNothing
	}

	if err := evaluate(); err != nil {
		return err
	}

	if err := c.up(ctx); err != nil {
		return fmt.Errorf("what was refused is not taken back: %w", err)
	}

	return o.evaluate(m)
}

// carryOut runs the update until it has gone through, and says how often it took more than one. With nothing wrong it
// is one.
func (c *cluster) carryOut(ctx context.Context, m *Model, s Step, o *observation) (again int, err error) {
	mark := len(c.r.Lab.Journal().Entries())

	mend, err := c.inject(s.Fault, o)
	if err != nil {
		return 0, err
	}

	err = c.up(ctx)
	mended := mend(ctx)

	switch {
	case mended != nil:
		return 0, errors.Join(mended, err)
	case s.Fault.Kind == "" && !s.Forecast.Again && err != nil:
		return 0, fmt.Errorf("nothing was wrong, and the update failed: %w", err)
	}

	if err := errors.Join(o.compareSoFar(), o.evaluate(m)); err != nil {
		return 0, err
	}

	for ; err != nil; again++ {
		if again == tries || errors.Is(err, errEndless) {
			return again, fmt.Errorf("it does not go on: %w", err)
		}

		if c.cli.Killed() {
			if err := c.unlock(ctx, mark); err != nil {
				return again, err
			}
		}

		if err := c.remove(ctx, err.Error()); err != nil {
			return again, err
		}

		var options []optup.Option
		if strings.Contains(err.Error(), "pulumi up --refresh") || strings.Contains(err.Error(), "does not exist") {
			options = append(options, optup.Refresh())
		}

		err = c.up(ctx, options...)
	}

	return again, nil
}

// kill switches a node off.
func (c *cluster) kill(ctx context.Context, m *Model, name string) error {
	v, err := c.vm(name)
	if err != nil {
		return err
	}

	if _, err := c.r.Lab.World().Stop(c.caller(), v.Host, v.ID); err != nil {
		return err
	}

	m.Dead = name

	return c.settle(ctx, m)
}

// inject lets go wrong what is to go wrong. The result puts it right again, once the update has ended.
func (c *cluster) inject(f Fault, o *observation) (mend func(context.Context) error, err error) {
	t, none := c.r.Talos, func(context.Context) error { return nil }

	switch f.Kind {
	case CallFails:
		c.r.Lab.Journal().Plant(f.planted())

		return func(context.Context) error { c.r.Lab.Journal().Clear(); return nil }, nil
	case Killed:
		return c.when(f, o, c.cli.Kill), nil
	case EtcdBlinks:
		return c.when(f, o, func() {
			defer o.hide(f.Node)()
			t.Break(f.Node, talos.EtcdCutOff)
			time.Sleep(blink)
			t.Mend(f.Node, talos.EtcdCutOff)
		}), nil
	case EtcdCut:
		t.Break(f.Node, talos.EtcdCutOff)

		return func(context.Context) error { t.Mend(f.Node, talos.EtcdCutOff); return nil }, nil
	case NodeFails:
		t.Break(f.Node, f.How)

		return func(ctx context.Context) error {
			t.Mend(f.Node, f.How)

			return c.wake(ctx, f)
		}, nil
	case ImageGone:
		t.Withdraw(f.Image)

		return func(context.Context) error { t.Publish(f.Image); return nil }, nil
	}

	return none, nil
}

// blink is how long a member is cut off: long enough for an update to go on meanwhile.
const blink = 3 * decided

// when does something once, at a moment of the update: at an event, or after so many calls of an operator. The result
// waits for it, or takes it back when its moment has not come.
func (c *cluster) when(f Fault, o *observation, do func()) (end func(context.Context) error) {
	var (
		now  = make(chan struct{}, 1)
		over = make(chan struct{})
		done = make(chan struct{})
		seen int
	)

	strike := func() {
		select {
		case now <- struct{}{}:
		default:
		}
	}

	if f.Event == "" {
		for _, face := range []journal.Face{journal.Proxmox, journal.Talos, journal.Kubernetes, journal.Factory} {
			c.r.Lab.Journal().Plant(journal.Fault{
				Face: face, Call: regexp.MustCompile(""), Kind: journal.Interfere, Times: math.MaxInt,
				Before: c.counted(&seen, f.Skip, strike),
			})
		}
	}

	go func() {
		defer close(done)

		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-over:
				return
			case <-now:
				time.Sleep(f.After)
				do()

				return
			case <-tick.C:
				if f.Event != "" && o.did(f.Event) {
					strike()
				}
			}
		}
	}()

	return func(context.Context) error {
		close(over)
		<-done
		c.r.Lab.Journal().Clear()

		return nil
	}
}

// counted strikes at a call of an operator.
func (c *cluster) counted(seen *int, skip int, strike func()) func(journal.Entry) {
	return func(e journal.Entry) {
		if _, operator := faults.CallOf(e); !operator {
			return
		}

		c.mu.Lock()
		defer c.mu.Unlock()

		if *seen++; *seen == skip+1 {
			strike()
		}
	}
}

// wake resets the machine of a node that does not come back, as its operator does.
func (c *cluster) wake(ctx context.Context, f Fault) error {
	if f.How != talos.NeverReturns {
		return nil
	}

	for _, s := range c.r.Talos.Nodes() {
		if s.Name != f.Node || s.NodeReady && s.Stage == talos.StageRunning {
			continue
		}

		v, err := c.vm(f.Node)
		if err != nil {
			return err
		}

		if _, err := c.r.Lab.World().Reset(c.caller(), v.Host, v.ID); err != nil {
			return err
		}
	}

	return nil
}

// unlock does what stacks/docs/troubleshooting.md tells after a run that was cut off: cancel, and refresh where the
// state has operations under way.
func (c *cluster) unlock(ctx context.Context, mark int) error {
	if err := c.quiet(ctx, mark); err != nil {
		return err
	}

	if err := c.r.Stack.Cancel(ctx); err != nil {
		return fmt.Errorf("pulumi cancel: %w", err)
	}

	pending, err := c.pending(ctx)
	if err != nil || len(pending) == 0 {
		return err
	}

	return c.refresh(ctx)
}

// quiet waits until the plugins have ended what they were at: no operator has called for a while, and no task runs.
func (c *cluster) quiet(ctx context.Context, mark int) error {
	const rest = 1500 * time.Millisecond

	last := time.Now()

	return c.until(ctx, func() string {
		all := c.r.Lab.Journal().Entries()
		for _, e := range all[mark:] {
			if _, operator := faults.CallOf(e); operator && e.Time.After(last) {
				last = e.Time
			}
		}

		mark = len(all)

		if time.Since(last) < rest {
			return "the lab is still being called"
		}

		return c.task()
	})
}

// deletable is a machine that a message says to delete, or that the state does not have.
var deletable = regexp.MustCompile(`VMID (\d+)[^\n]* is .*already, but not in this stack's state|'qm destroy (\d+) --purge'`)

// remove deletes the machines that were cut off in the making, which a message names.
func (c *cluster) remove(ctx context.Context, message string) error {
	w := c.r.Lab.World()

	for _, found := range deletable.FindAllStringSubmatch(message, -1) {
		for _, v := range w.Snapshot().VMs {
			if id := fmt.Sprint(v.ID); id != found[1] && id != found[2] {
				continue
			}

			if v.Running {
				if _, err := w.Stop(c.caller(), v.Host, v.ID); err != nil {
					return err
				}
			}

			if err := c.until(ctx, c.task); err != nil {
				return err
			}

			if _, err := w.Destroy(c.caller(), v.Host, v.ID, world.DestroyRequest{Purge: true}); err != nil {
				return err
			}

			if err := c.until(ctx, c.task); err != nil {
				return err
			}
		}
	}

	return nil
}
