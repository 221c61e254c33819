// Package stacks makes a cluster of a stack's configuration with the components, and defines what the stack offers to
// others.
package stacks

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/stacks/config"
)

// Program is the whole Pulumi program: load the stack's configuration, deploy it, export the outputs.
func Program(ctx *pulumi.Context) error {
	return run(ctx, ctx.RootDirectory())
}

// ProgramIn is Program for the Automation API, whose programs are not told where their project is: in the directory
// dir, which holds the stack's file and the patch files that the configuration names. set are called with the
// configuration that was loaded: who destroys the stack sets Destroying.
func ProgramIn(dir string, set ...func(*Config)) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error { return run(ctx, dir, set...) }
}

func run(ctx *pulumi.Context, dir string, set ...func(*Config)) error {
	c, err := config.Load(ctx, dir)
	if err != nil {
		return err
	}

	for _, change := range set {
		change(&c)
	}

	d, err := Deploy(ctx, c)
	if err != nil {
		return err
	}

	d.WriteFiles(ctx, dir)
	d.Export(ctx, "")

	return nil
}
