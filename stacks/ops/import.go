package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks/ops/importcmd"
	"talos-proxmox/stacks/ops/state"
	"talos-proxmox/stacks/shellword"
)

func importCluster(o *options) *cobra.Command {
	var a importcmd.Options

	c := &cobra.Command{
		Use: "import", Aliases: []string{"adopt"}, Args: cobra.NoArgs,
		Short: "Write a file for pulumi import with the resources of a cluster whose state is lost",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			a.Dir, a.Out = s.Dir, o.out

			files, err := importcmd.Write(c.Context(), s.Stack.(*state.Pulumi), a)
			if err != nil {
				return err
			}

			if err := next(o, files); err != nil {
				return errors.Join(err, files.Discard())
			}

			return nil
		},
	}

	c.Flags().StringVar(&a.Secrets, "secrets", "", "the cluster's secrets bundle, what talosctl gen secrets wrote")
	c.Flags().StringVar(&a.Talosconfig, "talosconfig", "",
		"an administrator's talosconfig, to read the cluster's secrets from a control plane")
	c.Flags().StringVar(&a.ControlPlane, "control-plane", "", "the address of a control plane, where neither the "+
		"configuration nor the talosconfig has it, and no guest agent reports it")

	return c
}

// next prints what to do with the files.
func next(o *options, files importcmd.Files) error {
	// pulumi runs in the project's directory. Of the two, only one may be absolute, and Rel takes no such pair.
	project, err1 := filepath.Abs(o.project)
	written, err2 := filepath.Abs(files.Import)

	if err := errors.Join(err1, err2); err != nil {
		return err
	}

	file, err := filepath.Rel(project, written)
	if err != nil {
		return err
	}

	ops := "go run ./stacks/ops"
	if o.project != "." {
		ops += " -C " + shellword.Quote(o.project)
	}

	ops += " -s " + shellword.Quote(o.stack)

	// What is imported has no hooks and stays protected until the update, which gives it hooks and ends the protection.
	fmt.Fprintf(o.out, "\nwrote %s; next:\n\n", files.Import)
	fmt.Fprintf(o.out, "  %s run import --file %s --generate-code=false\n  %s run up --refresh\n", ops,
		shellword.Quote(file), ops)

	if files.Secrets != "" {
		fmt.Fprintf(o.out, "  rm -r %s\n", shellword.Quote(filepath.Dir(files.Secrets)))
	}

	return nil
}
