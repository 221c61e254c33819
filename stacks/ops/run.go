package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/ops/state"
)

func run(o *options) *cobra.Command {
	var keep int

	c := &cobra.Command{
		Use:   "run up|destroy|import|refresh|state [arguments of pulumi]",
		Short: "Take a snapshot, then run pulumi; pulumi does not run without a snapshot",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			s.Keep = keep

			if err := compile(c.Context(), o.project); err != nil {
				return err
			}

			return s.Run(c.Context(), args, func(_ context.Context, args ...string) error {
				return pulumi(o.project, append(state.WithProgram(args), "--stack", o.stack))
			})
		},
	}
	// What follows pulumi's command is pulumi's.
	c.Flags().SetInterspersed(false)
	keepFlag(c, &keep)

	return c
}

// compile builds the program of a project whose Pulumi.yaml names a binary of it, so that pulumi runs no outdated one.
// It takes a second where nothing has changed. Without what a debugger needs, linking is half the work.
func compile(ctx context.Context, project string) error {
	path, err := workspace.DetectProjectPathFrom(project)
	if err != nil {
		return err
	}

	settings, err := workspace.LoadProject(path)
	if err != nil {
		return err
	}

	binary, named := settings.Runtime.Options()["binary"].(string)
	if !named || settings.Runtime.Name() != "go" || !exists(filepath.Join(project, "main.go")) {
		return nil
	}

	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, ".")
	build.Dir, build.Stdout, build.Stderr = project, os.Stdout, os.Stderr

	if err := build.Run(); err != nil {
		return fmt.Errorf("building %s, which runtime.options.binary of Pulumi.yaml names: %w", binary, err)
	}

	return nil
}

// endedError is that of a CLI that ran and failed. It has said why.
type endedError struct{ *exec.ExitError }

// pulumi hands the terminal over to the CLI. An interrupt by its keys reaches the CLI as it reaches us, and it is for
// the CLI to end. Without a terminal, signals reach this process alone, and are passed on: a second one would end the
// CLI at once.
func pulumi(dir string, args []string) error {
	c := exec.Command("pulumi", args...)
	c.Env = environment(args, os.Environ())
	passOn := !term.IsTerminal(int(os.Stdin.Fd()))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: passOn}

	// A write to a pipe without a reader fails instead of ending this process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	c.Dir, c.Stdin, c.Stdout, c.Stderr = dir, os.Stdin, keepsWriting(os.Stdout), keepsWriting(os.Stderr)
	c.WaitDelay = time.Second

	signals := make(chan os.Signal, 1)
	if passOn {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
	}

	if err := c.Start(); err != nil {
		return err
	}

	ended := make(chan struct{})
	defer close(ended)

	go passSignals(signals, c.Process, ended)

	err := c.Wait()

	var failed *exec.ExitError

	switch {
	case errors.As(err, &failed):
		return endedError{failed}
	case errors.Is(err, exec.ErrWaitDelay): // a plugin that outlives the CLI has its output, too
		return nil
	default:
		return err
	}
}

// passSignals passes signals on to a process until it has ended.
func passSignals(signals <-chan os.Signal, to *os.Process, ended <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			_ = to.Signal(s) // it may just have ended
		case <-ended:
			return
		}
	}
}

// faster are the variables of pulumi that make it faster, as stacks/docs/speed.md advises: nodes do not wait for each
// other, and the VMs are compared with the state in parallel.
var faster = []string{"PULUMI_PARALLEL=64", "PULUMI_PARALLEL_DIFF=true"}

// environment is that of pulumi: the given one, which wins, with what makes it faster. The program is told of a
// destroy.
func environment(args, given []string) []string {
	env := slices.Concat(faster, given)
	if args[0] == "destroy" {
		env = append(env, config.DestroyVariable+"=1")
	}

	return env
}

// keepsWriting is where the CLI writes to. The reader of a pipe may go away, as head does: that would end the CLI in
// the middle of an update, which leaves the lock, the operations under way and the plugins.
func keepsWriting(out *os.File) io.Writer {
	info, err := out.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return out
	}

	return &pipe{to: out}
}

// pipe swallows what is not read any more.
type pipe struct {
	to   io.Writer
	gone bool
}

// Write implements io.Writer.
func (p *pipe) Write(text []byte) (int, error) {
	if p.gone {
		return len(text), nil
	}

	n, err := p.to.Write(text)
	if !errors.Is(err, syscall.EPIPE) {
		return n, err
	}

	p.gone = true

	fmt.Fprintln(os.Stderr, "note: the output of pulumi is no longer read; pulumi continues until it has finished")

	return len(text), nil
}
