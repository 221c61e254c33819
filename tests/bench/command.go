package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
)

// measured is a pulumi command that measures what runs the engine: not the commands by which the Automation API reads
// history and outputs afterwards, which an operator does not wait for.
type measured struct {
	auto.PulumiCommand

	watch *watch
	// profiles is how the files begin that profiles of the engine are written to (pulumi --profiling); empty: none are.
	// The stage follows: what creates and what finds nothing to change are both an "up".
	profiles string
	stage    Stage
	// saves counts how often the engine saves the state.
	saves *saves
	// finished waits until what the command began has come to its end.
	finished func() error

	began, ended time.Time
	used         map[Process]Use
	saved        Saves
}

// Run implements auto.PulumiCommand.
func (m *measured) Run(
	ctx context.Context, dir string, in io.Reader, out, errs []io.Writer, env []string, args ...string,
) (string, string, int, error) {
	if len(args) == 0 || !slices.Contains([]string{"up", "preview", "refresh", "destroy"}, args[0]) {
		return m.PulumiCommand.Run(ctx, dir, in, out, errs, env, args...)
	}

	if m.profiles != "" {
		args = append(args, "--profiling", m.profiles+"-"+m.stage.file())
	}

	m.watch.take()
	m.saves.take()
	m.began = time.Now()

	printed, complaints, code, err := m.PulumiCommand.Run(ctx, dir, in, out, errs, env, args...)
	m.used, m.saved = m.watch.take(), m.saves.take()

	if err == nil {
		err = m.finished()
	}

	m.ended = time.Now()

	return printed, complaints, code, err
}
