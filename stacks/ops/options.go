package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/spf13/cobra"

	"talos-proxmox/stacks/ops/state"
)

// options are the flags that all commands share.
type options struct {
	project, stack, dir string
	out                 io.Writer
}

// cwdFlag names the directory of the project, as pulumi's own flag does.
const cwdFlag = "cwd"

// findProject settles the directory of the project: the one that is named, or the nearest upwards with a Pulumi.yaml.
func (o *options) findProject(c *cobra.Command) error {
	if c.Flags().Changed(cwdFlag) {
		return nil
	}

	start, err := os.Getwd()
	if err != nil {
		return err
	}

	for dir := start; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "Pulumi.yaml")) {
			o.project, err = filepath.Rel(start, dir)

			return err
		}

		if dir == filepath.Dir(dir) {
			// Commands that only read files need no project; the others say that there is none.
			o.project = "."

			return nil
		}
	}
}

// open opens the stack, and settles which one it is.
func (o *options) open(ctx context.Context) (state.State, error) {
	// The version that the program needs; it is one of the SDK's own type.
	minimum := sdk.Version
	minimum.Minor, minimum.Patch = 255, 0

	cli, err := auto.NewPulumiCommand(&auto.PulumiCommandOptions{Version: minimum})
	if err != nil {
		return state.State{}, fmt.Errorf("the pulumi CLI, %s or later, is needed: %w", minimum, err)
	}

	stack, err := state.Open(ctx, o.project, o.stack, auto.Pulumi(cli))
	if err != nil {
		return state.State{}, err
	}

	o.stack = stack.Stack.Name()

	return state.State{Stack: stack, Dir: o.inProject(o.dir), Out: o.out}, nil
}

// inProject is a path as it is seen from the project.
func (o *options) inProject(path string) string {
	if filepath.IsAbs(path) {
		return path
	}

	return filepath.Join(o.project, path)
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

// group makes a command of several refuse what is none of them: cobra alone prints its help and succeeds.
func group(c *cobra.Command) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		var names []string
		for _, sub := range c.Commands() {
			names = append(names, sub.Name())
		}

		if len(args) == 0 {
			return fmt.Errorf("%s: name a command: %s", c.CommandPath(), strings.Join(names, ", "))
		}

		return fmt.Errorf("%s: unknown command %q: use one of %s", c.CommandPath(), args[0], strings.Join(names, ", "))
	}

	return c
}

// stackFile is the path of a stack's file, which is named by the stack or by its path.
func (o *options) stackFile(named string) string {
	if strings.HasSuffix(named, ".yaml") {
		return named
	}

	return filepath.Join(o.project, "Pulumi."+named+".yaml")
}
