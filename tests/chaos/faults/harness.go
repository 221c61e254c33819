package faults

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"

	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// Stage is a part of a stack's life.
type Stage string

// The stages, in their order.
const (
	Create  Stage = "create"
	ScaleUp Stage = "scale-up"
	Update  Stage = "update"
	Upgrade Stage = "upgrade"
	Replace Stage = "replace"
	Remove  Stage = "remove"
	// Teardown is the first step of the end, and Destroy the second.
	Teardown Stage = "teardown"
	Destroy  Stage = "destroy"
)

// Stages are all of them.
func Stages() []Stage {
	return []Stage{Create, ScaleUp, Update, Upgrade, Replace, Remove, Teardown, Destroy}
}

// StagesOf are those of a stack's life. The smallest have no node to upgrade, replace or remove without an outage.
func StagesOf(stack string) []Stage {
	if upgrades[stack] == nil {
		return []Stage{Create, ScaleUp, Update, Destroy}
	}

	return Stages()
}

// settings are what each stage changes in the configuration, after what those before it have changed. An empty value
// takes a key out.
var settings = map[Stage]map[string]string{
	ScaleUp:  {"pools.worker.count": "+1"},
	Update:   {"pools.worker.cores": "4", "pools.worker.diskGiB": "50", "pools.worker.labels.tier": "db"},
	Replace:  {"lifecycle.replace[0]": "small-worker-1"},
	Remove:   {"lifecycle.replace": "", "pools.worker.count": "+0"},
	Teardown: {"lifecycle.teardown": "true"},
	Destroy:  {"lifecycle.teardown": "true"},
}

// upgrades are the versions that a stack goes to.
var upgrades = map[string]map[string]string{
	"ha":  {"cluster.versions.talos": "v1.12.4", "cluster.versions.kubernetes": "v1.35.0"},
	"k3s": {"cluster.versions.k3s": "v1.34.3+k3s1"},
}

//go:embed stacks/*.yaml
var small embed.FS

// Stacks are the names of the small stacks: one for each way that a node comes to its first boot, one that is highly
// available, and one of K3s.
func Stacks() []string { return []string{"template", "iso", "disk", "ha", "k3s"} }

// workers is how many workers a small stack begins with.
var workers = map[string]int{"template": 0, "iso": 1, "disk": 1, "ha": 2, "k3s": 1}

// Bounds of what a harness waits for.
const (
	operationBound = 5 * time.Minute
	readyBound     = 2 * time.Minute
)

// Harness is a small stack with a lab of its own. It serves one life after the other, until one ends in another world
// than it should.
type Harness struct {
	Name string
	// Reference is the undisturbed life, by stage.
	Reference map[Stage]Reference

	r     *rehearsal.Rehearsal
	cli   *engine.Command
	texts map[Stage][]byte // the stack's file
	log   *engine.Transcript
	// failed is what the runs of a case ended with that failed.
	failed []string
	// recreated are the machines of a case that a message said to replace, by VMID.
	recreated []int
	// dir is the harness's own.
	dir string
}

// Reference is a stage of the undisturbed life.
type Reference struct {
	Calls map[Call]int
	Took  time.Duration
	// Made are the machines that the stage leaves as they were, by VMID.
	view View
	// renewed are the machines that it recreates or removes.
	renewed []int
	// Held is how many evictions were asked for again: a budget had not allowed them.
	Held int
}

// Open makes a harness for one of the small stacks, and lets it live an undisturbed life.
func Open(ctx context.Context, e *engine.Engine, name, dir string, proxmox world.Version) (*Harness, error) {
	g := &Harness{
		Name: name, Reference: map[Stage]Reference{}, cli: e.NewCommand(), texts: map[Stage][]byte{},
		log: &engine.Transcript{}, dir: dir,
	}

	// The end of an operation is not read.
	g.cli.Terse = true

	text, err := small.ReadFile("stacks/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("there is no stack %q: choose from %s", name, strings.Join(Stacks(), ", "))
	}

	file := filepath.Join(dir, "Pulumi.small.yaml")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, text, 0o600)); err != nil {
		return nil, err
	}

	stack, err := rehearsal.ReadStack(file)
	if err != nil {
		return nil, err
	}

	g.r, err = rehearsal.Start(ctx, stack, rehearsal.Options{
		Engine: e, Dir: dir, Proxmox: proxmox, Workspace: []auto.LocalWorkspaceOption{auto.Pulumi(g.cli)},
	})
	if err != nil {
		return nil, err
	}

	if err := g.prepare(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}

	for _, stage := range StagesOf(name) {
		if err := g.reference(ctx, stage); err != nil {
			return nil, errors.Join(fmt.Errorf("the undisturbed life of stack %s, %s: %w", name, stage, err), g.Close())
		}
	}

	return g, nil
}

// Close ends the lab, and removes what the harness has written.
func (g *Harness) Close() error {
	return errors.Join(EndOrphans(g.dir), g.r.Close(), os.RemoveAll(g.dir))
}

func (g *Harness) file() string {
	return filepath.Join(g.r.Stack.Workspace().WorkDir(), "Pulumi."+g.r.Stack.Name()+".yaml")
}

// prepare writes down the configuration of each stage.
func (g *Harness) prepare(ctx context.Context) error {
	for _, stage := range StagesOf(g.Name) {
		changed := settings[stage]
		if stage == Upgrade {
			changed = upgrades[g.Name]
		}

		for key, value := range changed {
			if err := g.set(ctx, key, value); err != nil {
				return err
			}
		}

		text, err := os.ReadFile(g.file())
		if err != nil {
			return err
		}

		g.texts[stage] = text
	}

	return nil
}

// set changes a key of the configuration.
func (g *Harness) set(ctx context.Context, key, value string) error {
	if value == "" {
		return rehearsal.Unset(ctx, g.r.Stack, key)
	}

	if more, relative := strings.CutPrefix(value, "+"); relative {
		n, err := strconv.Atoi(more)
		if err != nil {
			return err
		}

		value = strconv.Itoa(workers[g.Name] + n)
	}

	return rehearsal.Set(ctx, g.r.Stack, key, value)
}

// reference runs a stage undisturbed, and notes what it does.
func (g *Harness) reference(ctx context.Context, stage Stage) error {
	mark, start := g.mark(), time.Now()

	before, err := machines(g.r.Lab.World())
	if err != nil {
		return err
	}

	if err := g.plain(ctx, stage); err != nil {
		return err
	}

	entries := g.r.Lab.Journal().Entries()[mark:]
	r := Reference{Took: time.Since(start), Calls: count(entries), Held: held(entries)}

	if r.view, err = g.look(); err != nil {
		return err
	}

	after, err := machines(g.r.Lab.World())
	if err != nil {
		return err
	}

	for id, uuid := range before {
		if after[id] != uuid {
			r.renewed = append(r.renewed, id)
		}
	}

	g.Reference[stage] = r

	return nil
}

// plain runs a stage and waits for its end.
func (g *Harness) plain(ctx context.Context, stage Stage) error {
	if err := g.run(ctx, stage); err != nil {
		return err
	}

	return g.settle(ctx)
}

// mark is where the journal stands.
func (g *Harness) mark() int { return len(g.r.Lab.Journal().Entries()) }

// look looks at the world and the state.
func (g *Harness) look() (View, error) {
	v, err := view(g.r.Lab.World())
	if err != nil {
		return View{}, err
	}

	s, err := g.state()
	v.Resources = s.urns()

	return v, err
}

// run runs the operation of a stage once. What it printed is in the error.
func (g *Harness) run(ctx context.Context, stage Stage, refresh ...bool) error {
	if err := os.WriteFile(g.file(), g.texts[stage], 0o600); err != nil {
		return err
	}

	return g.operate(ctx, stage, len(refresh) > 0 && refresh[0])
}

// operate runs the operation of a stage with the configuration as it is.
func (g *Harness) operate(ctx context.Context, stage Stage, refreshFirst bool) error {
	ctx, cancel := context.WithTimeout(ctx, operationBound)
	defer cancel()

	g.log.Reset()

	var err error

	if stage == Destroy {
		options := []optdestroy.Option{
			optdestroy.RunProgram(true), optdestroy.SuppressOutputs(), optdestroy.ProgressStreams(g.log),
			optdestroy.ErrorProgressStreams(g.log),
		}
		if refreshFirst {
			options = append(options, optdestroy.Refresh())
		}

		// As ops run destroys it: the program looks at what is deleted.
		g.r.Destroying.Store(true)

		_, err = g.r.Stack.Destroy(ctx, options...)

		g.r.Destroying.Store(false)
	} else {
		options := []optup.Option{optup.SuppressOutputs(), optup.ProgressStreams(g.log), optup.ErrorProgressStreams(g.log)}
		if refreshFirst {
			options = append(options, optup.Refresh())
		}

		_, err = g.r.Stack.Up(ctx, options...)
	}

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not end within %s:\n%s", operationBound, g.log.Tail())
	default:
		err = errors.New(g.log.Tail())
	}

	g.failed = append(g.failed, err.Error())

	return err
}

// settle waits until everything that was begun has ended: tasks, and nodes that come up.
func (g *Harness) settle(ctx context.Context) error { return g.until(ctx, g.busy) }

// idle waits until no task runs.
func (g *Harness) idle(ctx context.Context) error { return g.until(ctx, g.task) }

func (g *Harness) until(ctx context.Context, question func() string) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()

	for {
		waiting := question()
		if waiting == "" {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%s after %s", waiting, readyBound)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// busy says what has not come to its end.
func (g *Harness) busy() string {
	if t := g.task(); t != "" {
		return t
	}

	ready := map[int]string{}

	note := func(id int, stage string, isReady bool) {
		if ready[id] = stage; isReady {
			ready[id] = ""
		}
	}

	if g.r.Ubuntu != nil {
		for _, s := range g.r.Ubuntu.Nodes() {
			note(s.VMID, s.Stage, s.NodeReady)
		}
	} else {
		for _, s := range g.r.Talos.Nodes() {
			note(s.VMID, s.Stage, s.NodeReady)
		}
	}

	for _, vm := range g.r.Lab.World().Snapshot().VMs {
		if stage, runs := ready[vm.ID]; !vm.Template && (!runs || stage != "") {
			return fmt.Sprintf("VM %d is not ready (%s)", vm.ID, stage)
		}
	}

	return ""
}

// task is a task that runs.
func (g *Harness) task() string {
	for _, t := range g.r.Lab.World().Tasks("") {
		if t.End.IsZero() {
			return fmt.Sprintf("task %s of %s runs", t.Type, t.ID)
		}
	}

	return ""
}

// caller is another user of Proxmox VE.
func (g *Harness) caller() world.Caller { return world.Caller{ID: g.r.Lab.Credentials().TokenID} }
