package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/components/lifecycle"
	"talos-proxmox/stacks/ops/guard"
	"talos-proxmox/stacks/ops/impact"
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

			preview := io.Discard
			if verbose {
				preview = os.Stderr
			}

			rows, warnings, err := impact.Of(c.Context(), s.Stack.(*guard.Pulumi).Stack, preview)

			for _, w := range warnings {
				fmt.Fprintln(os.Stderr, "warning: "+strings.TrimPrefix(w, "warning: "))
			}

			if asJSON {
				encoder := json.NewEncoder(o.out)
				encoder.SetIndent("", "  ")

				return errors.Join(encoder.Encode(rows), err)
			}

			return errors.Join(lifecycle.Table(o.out, rows), err)
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the preview, too")
	c.Flags().BoolVar(&asJSON, "json", false, "write the table as JSON")

	return c
}
