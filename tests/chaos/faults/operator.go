package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"talos-proxmox/stacks/ops/importcmd"
	opsstate "talos-proxmox/stacks/ops/state"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/world"
)

// importState takes VMs into the state that exist and are not in it, as stacks/docs/recovery.md says: adopt, import. An
// update with --refresh follows.
func (g *Harness) importState(ctx context.Context) error {
	stack, err := opsstate.On(ctx, g.r.Stack)
	if err != nil {
		return err
	}

	var said bytes.Buffer

	files, err := importcmd.Write(ctx, stack, importcmd.Options{Dir: filepath.Join(g.dir, "state-backups"), Out: &said})
	if err != nil {
		return fmt.Errorf("adopt: %w\n%s", err, said.String())
	}

	if err := g.pulumi(ctx, "import", "--file", files.Import, "--generate-code=false", "--yes"); err != nil {
		return fmt.Errorf("%w\nadopt said:\n%s", err, said.String())
	}

	return nil
}

// pulumi runs the pulumi CLI on the stack.
func (g *Harness) pulumi(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, g.r.Engine().CLI(),
		append(args, "--stack", g.r.Stack.Name(), "--non-interactive")...)
	command.Dir, command.Env = g.r.Stack.Workspace().WorkDir(), g.r.Backend.Environ()

	printed := &engine.Transcript{}
	command.Stdout, command.Stderr = printed, printed

	if err := command.Run(); err != nil {
		return fmt.Errorf("pulumi %s: %w\n%s", args[0], err, printed.Tail())
	}

	return nil
}

// foreignVM is a VM of others, on a VMID of the plan.
type foreignVM struct {
	id  int
	err error
}

// placeForeignVM makes one where the first VM is to be that the stage makes and that is not there yet.
func (g *Harness) placeForeignVM(stage Stage) foreignVM {
	w := g.r.Lab.World()

	taken := map[int]bool{}
	for _, vm := range w.Snapshot().VMs {
		taken[vm.ID] = true
	}

	for _, n := range slices.Sorted(maps.Keys(g.Reference[stage].view.Configs)) {
		if taken[n] {
			continue
		}

		_, err := w.Create(g.caller(), "pve", world.CreateRequest{VMID: n, Conf: map[string]string{"name": "stranger"}})

		return foreignVM{n, err}
	}

	return foreignVM{err: errors.New("every VM of the plan is there: nothing is left for a foreign VM")}
}

// leave holds that the foreign VM has not been touched, and takes it away.
func (s foreignVM) leave(g *Harness) error {
	if s.id == 0 || s.err != nil {
		return s.err
	}

	w := g.r.Lab.World()

	if err := g.idle(context.Background()); err != nil {
		return err
	}

	config, err := w.Config("pve", s.id, true)
	if err != nil {
		return fmt.Errorf("the foreign VM %d is gone: %w", s.id, err)
	}

	if fmt.Sprint(config["name"]) != "stranger" || config["tags"] != nil || config["net0"] != nil {
		return fmt.Errorf("the foreign VM %d was changed: %v", s.id, config)
	}

	if _, err := w.Destroy(g.caller(), "pve", s.id, world.DestroyRequest{}); err != nil {
		return err
	}

	for deadline := time.Now().Add(readyBound); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := w.Config("pve", s.id, true); err != nil {
			return nil
		}
	}

	return fmt.Errorf("the foreign VM %d does not go", s.id)
}
