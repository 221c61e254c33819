package faults

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

// remedy is what a message, or stacks/docs/troubleshooting.md by its words, tells an operator to do before the same
// operation once more.
type remedy struct {
	verdict Verdict
	pattern *regexp.Regexp
	// changes says that it is for VMs that were there before the stage.
	changes bool
	// do is done to each thing that the message names; nil: nothing has to be done.
	do func(ctx context.Context, g *Harness, named string) error
}

// freeVolume tells to delete a file on a host.
var freeVolume = regexp.MustCompile(`'pvesm free ([^']+)'`)

// deleteMapping tells to delete a resource mapping.
var deleteMapping = regexp.MustCompile(`'pvesh delete /cluster/mapping/pci/([^']+)'`)

// remedies are all, the first that a message tells counts. The verdicts of those that take more come first, too.
var remedies = []remedy{
	{
		verdict: Recreated, changes: true, do: replaceNode,
		pattern: regexp.MustCompile(`VM (\d+) on host \S+ is not finished: the state does not know its disks.* Replace the node`),
	},
	{verdict: Deleted, pattern: regexp.MustCompile(`'qm destroy (\d+) --purge'`), do: destroyVM},
	{verdict: Deleted, pattern: freeVolume, do: func(_ context.Context, g *Harness, volume string) error {
		store, _, _ := strings.Cut(volume, ":")
		_, err := g.r.Lab.World().DeleteVolume(g.caller(), "pve", store, volume)

		return err
	}},
	{
		verdict: Deleted, pattern: regexp.MustCompile(`pci ID '([^']+)' already defined`),
		do: removeMapping,
	},
	{verdict: Deleted, pattern: deleteMapping, do: removeMapping},
	{
		verdict: Imported, pattern: regexp.MustCompile(`but not in this stack's state`),
		do: func(ctx context.Context, g *Harness, _ string) error { return g.importState(ctx) },
	},
	{
		// An operation that did not end was killed.
		verdict: Refreshed, pattern: regexp.MustCompile(`the stack is currently locked`),
		do: func(ctx context.Context, g *Harness, _ string) error {
			return errors.Join(g.r.Stack.Cancel(ctx), g.refresh(ctx))
		},
	},
	{verdict: Refreshed, pattern: regexp.MustCompile(`pulumi up --refresh`)},
	{verdict: Refreshed, pattern: regexp.MustCompile(`does not exist`)},
}

// remedy does what an error tells to do, and runs the stage again; false when it tells nothing.
func (g *Harness) remedy(ctx context.Context, stage Stage, failed error) (Verdict, bool, error) {
	for _, r := range remedies {
		named := r.pattern.FindAllStringSubmatch(failed.Error(), -1)
		if len(named) == 0 || r.changes && (stage == Create || stage == ScaleUp) {
			continue
		}

		var done []string

		for _, m := range named {
			// It may be named more than once.
			thing := m[len(m)-1]
			if r.do == nil || slices.Contains(done, thing) {
				continue
			}

			if err := r.do(ctx, g, thing); err != nil {
				return r.verdict, true, err
			}

			if err := g.idle(ctx); err != nil {
				return r.verdict, true, err
			}

			done = append(done, thing)
		}

		refresh := r.verdict == Refreshed || r.verdict == Imported ||
			r.verdict != Recreated && strings.Contains(failed.Error(), "'pulumi up --refresh'")

		return r.verdict, true, g.run(ctx, stage, refresh)
	}

	return "", false, nil
}

func removeMapping(_ context.Context, g *Harness, name string) error {
	return g.r.Lab.World().DeleteMapping("pci", name)
}

// replaceNode names the node of a VM in lifecycle.replace and updates the stack. What follows takes the name out again.
func replaceNode(ctx context.Context, g *Harness, id string) error {
	n, err := strconv.Atoi(id)
	if err != nil {
		return err
	}

	config, err := g.r.Lab.World().Config("pve", n, true)
	if err != nil {
		return err
	}

	if err := g.set(ctx, "lifecycle.replace[0]", fmt.Sprint(config["name"])); err != nil {
		return err
	}

	g.recreated = append(g.recreated, n)

	return g.operate(ctx, Update, false)
}

func destroyVM(ctx context.Context, g *Harness, id string) error {
	n, err := strconv.Atoi(id)
	if err != nil {
		return err
	}

	// It may be off.
	if _, err := g.r.Lab.World().Stop(g.caller(), "pve", n); err == nil {
		if err := g.idle(ctx); err != nil {
			return err
		}
	}

	_, err = g.r.Lab.World().Destroy(g.caller(), "pve", n, world.DestroyRequest{Purge: true})

	return err
}

// worse is what took more.
func worse(a, b Verdict) Verdict {
	place := func(v Verdict) int {
		return slices.IndexFunc(remedies, func(r remedy) bool { return r.verdict == v })
	}

	if pa, pb := place(a), place(b); pa < 0 || pb >= 0 && pb < pa {
		return b
	}

	return a
}
