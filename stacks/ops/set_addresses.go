package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"talos-proxmox/components/atomicfile"
	"talos-proxmox/stacks/nodesjson"
)

// addresses brings the addresses of a nodes.json into a stack file.
func addresses() *cobra.Command {
	var write bool

	c := &cobra.Command{
		Use: "set-addresses <nodes.json> <stack file>", Aliases: []string{"addresses"},
		Short: "Write the addresses of a nodes.json to a stack file (network.addressing reported)",
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

			return rewrite(args[1], result.Text)
		},
	}
	c.Flags().BoolVar(&write, "write", false, "write them into the file; without it the block of pools is printed")

	return c
}

// rewrite gives a file another content, or leaves it as it is: it may hold encrypted secrets that nothing else has.
func rewrite(path string, text []byte) error {
	// A link stays one.
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}

	info, err := os.Stat(path)
	if err != nil {
		return err
	}

	fill := func(f *os.File) error {
		_, err := f.Write(text)

		return errors.Join(err, f.Chmod(info.Mode()))
	}

	return atomicfile.Write(filepath.Dir(path), fill, func(whole string) error { return os.Rename(whole, path) })
}
