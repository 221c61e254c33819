package main

import (
	"context"
	"io"
	"path/filepath"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
)

// profiled is a pulumi command that leaves profiles of the engine (pulumi --profiling): where the time of its own goes.
type profiled struct {
	auto.PulumiCommand

	prefix string
}

// Run implements auto.PulumiCommand. Of the many small commands of the Automation API, no profiles are made.
func (p profiled) Run(
	ctx context.Context, dir string, in io.Reader, out, errs []io.Writer, env []string, args ...string,
) (string, string, int, error) {
	if len(args) > 0 && slices.Contains([]string{"up", "preview", "refresh", "destroy"}, args[0]) {
		args = append(args, "--profiling", p.prefix+"-"+args[0])
	}

	return p.PulumiCommand.Run(ctx, dir, in, out, errs, env, args...)
}

// profiling has the commands of a stack leave profiles, where they are asked for.
func (l *life) profiling() []auto.LocalWorkspaceOption {
	if l.profiles == "" {
		return nil
	}

	return []auto.LocalWorkspaceOption{auto.Pulumi(profiled{l.engine.Command(), filepath.Join(l.profiles, l.row.String())})}
}
