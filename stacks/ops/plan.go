package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"talos-proxmox/components/preflight"
	opsplan "talos-proxmox/stacks/ops/plan"
	"talos-proxmox/stacks/planview"
)

// planOf shows what a stack file plans, without an engine, a state or Proxmox VE.
func planOf(o *options) *cobra.Command {
	var format string

	c := &cobra.Command{
		Use: "plan <stack or file>", Args: cobra.ExactArgs(1),
		Short: "Show what a stack file plans, and which key each decision came from",
		Long: "Show what a stack file plans, and which key each decision came from. Nothing is contacted.\n\n" +
			"A stack is the name in Pulumi.<stack>.yaml, or the path of such a file.",
		RunE: func(c *cobra.Command, args []string) error {
			spec, p, err := opsplan.OfFile(o.stackFile(args[0]))
			if err != nil {
				return err
			}

			var text string

			switch format {
			case "text":
				if text, err = planview.Text(spec, p); err != nil {
					return err
				}

				text += "\nNothing was contacted: " + preflight.Unchecked + ".\n"
			case "svg":
				text = planview.SVG(p)
			default:
				return fmt.Errorf("--format is text or svg, not %q", format)
			}

			_, err = io.WriteString(c.OutOrStdout(), text)

			return err
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text, or svg for a picture, on standard output")

	return c
}
