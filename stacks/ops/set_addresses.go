package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks/nodesjson"
)

// addresses brings the addresses of a nodes.json into a stack file.
func addresses() *cobra.Command {
	var write bool

	c := &cobra.Command{
		Use: "set-addresses <nodes.json> <stack file>", Aliases: []string{"addresses"},
		Short: "State the addresses of a nodes.json in a stack file (network.addressing reported)",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			file, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}

			nodes, err := nodesjson.Read(file)
			if err != nil {
				return err
			}

			stack, err := os.ReadFile(args[1])
			if err != nil {
				return err
			}

			result, err := nodes.Apply(stack, filepath.Dir(args[1]))
			if err != nil {
				return err
			}

			for _, note := range result.Notes {
				fmt.Fprintln(c.ErrOrStderr(), "note: "+note)
			}

			if !write {
				_, err := io.WriteString(c.OutOrStdout(), result.Pools)

				return err
			}

			info, err := os.Stat(args[1])
			if err != nil {
				return err
			}

			return os.WriteFile(args[1], result.Text, info.Mode())
		},
	}
	c.Flags().BoolVar(&write, "write", false, "write them into the file; without it the block of pools is printed")

	return c
}
