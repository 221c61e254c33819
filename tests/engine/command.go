package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
)

// Command runs the pulumi CLI for the Automation API, and kills it when it is told to. It is for one stack at a time.
type Command struct {
	// Terse leaves out what the Automation API asks at the end of each operation: there are no outputs and no summary
	// then, and the time that a small operation takes is saved.
	Terse bool

	path string

	mu      sync.Mutex
	process *os.Process
	killed  bool
}

var _ auto.PulumiCommand = (*Command)(nil)

// NewCommand is for the engine's CLI: auto.Pulumi takes it.
func (e *Engine) NewCommand() *Command { return &Command{path: e.cli} }

// spared are the commands by which the Automation API ends each operation, and what stands for their answers.
var (
	spared  = map[string]string{"stack output": "{}", "stack history": "[]"}
	history = map[string]string{"stack history": "[]"}
)

// answerFor is what stands for the answer of a command, if it is one of those that are left out.
func answerFor(left map[string]string, args []string) (answer string, there bool) {
	answer, there = left[strings.Join(args[:min(2, len(args))], " ")]

	return answer, there
}

type terseKey struct{}

// Terse returns a context in which the operations of a backend's stacks leave out what Command.Terse does.
func Terse(ctx context.Context) context.Context { return context.WithValue(ctx, terseKey{}, spared) }

// WithoutSummary returns a context in which the operations of a backend's stacks have outputs, and no summary.
func WithoutSummary(ctx context.Context) context.Context {
	return context.WithValue(ctx, terseKey{}, history)
}

// tersely is a command that heeds Terse and WithoutSummary.
type tersely struct{ auto.PulumiCommand }

func (c tersely) Run(
	ctx context.Context, dir string, in io.Reader, out, errs []io.Writer, env []string, args ...string,
) (stdout, stderr string, code int, err error) {
	left, _ := ctx.Value(terseKey{}).(map[string]string)
	if answer, there := answerFor(left, args); there {
		return answer, "", 0, nil
	}

	return c.PulumiCommand.Run(ctx, dir, in, out, errs, env, args...)
}

// Version implements auto.PulumiCommand. Open has made sure of it.
func (*Command) Version() semver.Version { return sdk.Version }

// Run implements auto.PulumiCommand.
func (c *Command) Run(
	ctx context.Context, dir string, in io.Reader, out, errs []io.Writer, env []string, args ...string,
) (stdout, stderr string, code int, err error) {
	if answer, there := answerFor(spared, args); there && c.Terse {
		return answer, "", 0, nil
	}

	var printed, complained strings.Builder

	command := exec.CommandContext(ctx, c.path, append([]string{"--non-interactive"}, args...)...)
	command.Dir, command.Stdin = dir, in
	command.Env = append(append(os.Environ(), env...), "PULUMI_AUTOMATION_API=true")
	command.Stdout, command.Stderr = io.MultiWriter(append(out, &printed)...), io.MultiWriter(append(errs, &complained)...)
	// Plugins that live on have the pipes too.
	command.WaitDelay = time.Second

	if err := command.Start(); err != nil {
		return "", "", -1, err
	}

	// Only these are the operations of a stage.
	if changes := args[0] == "up" || args[0] == "destroy"; changes {
		c.hold(command.Process)
		defer c.hold(nil)
	}

	err = command.Wait()

	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}

	return printed.String(), complained.String(), code, err
}

func (c *Command) hold(p *os.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.process = p; p != nil {
		c.killed = false
	}
}

// Kill kills the update that runs, if one does, by SIGKILL. Its plugins live on for a moment, as they do when it
// happens to an operator.
func (c *Command) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.process != nil {
		c.killed = c.process.Kill() == nil
	}
}

// Signal sends the update that runs, if one does, what Ctrl-C or a service manager sends. In a terminal that reaches
// the CLI alone, too: its plugins, the language host and with it the program are in process groups of their own.
func (c *Command) Signal(s os.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.process == nil {
		return errors.New("no update runs")
	}

	return c.process.Signal(s)
}

// Killed tells whether the update that ended last was killed.
func (c *Command) Killed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.killed
}
