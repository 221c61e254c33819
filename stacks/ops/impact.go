package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/components/impact"
	"talos-proxmox/stacks/ops/impactcmd"
	"talos-proxmox/stacks/ops/state"
)

func impactOf(o *options) *cobra.Command {
	var asJSON, verbose bool

	c := &cobra.Command{
		Use: "impact", Short: "Preview, and show what the update would do to each node", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			progress := io.Discard
			if verbose {
				progress = os.Stderr
			}

			rows, warnings, err := impactcmd.Impact(c.Context(), s.Stack.(*state.Pulumi).Stack, progress)

			for _, w := range warnings {
				fmt.Fprintln(os.Stderr, "warning: "+strings.TrimPrefix(w, "warning: "))
			}

			if asJSON {
				encoder := json.NewEncoder(o.out)
				encoder.SetIndent("", "  ")

				return errors.Join(encoder.Encode(rows), err)
			}

			return errors.Join(impact.Table(o.out, rows), err)
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the preview, too")
	c.Flags().BoolVar(&asJSON, "json", false, "write the table as JSON")

	return c
}
