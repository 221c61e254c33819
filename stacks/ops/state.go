package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks/ops/state"
)

func snapshot(o *options) *cobra.Command {
	var keep int

	c := &cobra.Command{
		Use: "snapshot", Short: "Keep the state in a file, with its secrets encrypted", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			s.Keep = keep
			_, err = s.Snapshot(c.Context())

			return err
		},
	}
	keepFlag(c, &keep)

	return c
}

func keepFlag(c *cobra.Command, keep *int) {
	c.Flags().Var((*keepCount)(keep), "keep",
		"remove the oldest snapshots beyond this number, but none that a restore has kept; 0 removes none")
}

// keepCount is a number of files to keep, which is not negative.
type keepCount int

func (k *keepCount) String() string { return strconv.Itoa(int(*k)) }

func (k *keepCount) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return errors.New("must be a number from 0 on")
	}

	*k = keepCount(n)

	return nil
}

// Type is what the help calls it.
func (*keepCount) Type() string { return "int" }

func list(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the snapshots, newest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			files, err := s.Snapshots().List()
			if err != nil {
				return err
			}

			return show(o.out, files)
		},
	}
}

// show prints a table of snapshots.
func show(out io.Writer, files []state.File) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SNAPSHOT\tTAKEN\tRESOURCES\tREMARK")

	for _, f := range files {
		remark := ""

		switch {
		case f.Err != nil:
			remark = f.Err.Error()
		case f.PreRestore:
			remark = "kept by a restore"
		case f.Deployment.Pending > 0:
			remark = "an update was under way"
		}

		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", filepath.Base(f.Path), f.Taken.Local().Format("2006-01-02 15:04:05"),
			len(f.Deployment.URNs), remark)
	}

	return w.Flush()
}

func check(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check that an update could run: no lock, state readable, configuration valid, preview",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			return s.Check(c.Context())
		},
	}
}

func restore(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "restore <snapshot>", Short: "Make a snapshot the state again, and preview; never updates",
		Long: "Make a snapshot the state again, and preview; never updates.\n\n" +
			"The snapshot is a file, the name of one in the directory of snapshots, or the word newest.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			chosen, err := choose(s.Snapshots(), args[0])
			if err != nil {
				return err
			}

			return s.Restore(c.Context(), chosen)
		},
	}
}

// choose finds the snapshot that is meant.
func choose(s state.Snapshots, meant string) (string, error) {
	if meant == "newest" {
		f, err := s.Newest()

		return f.Path, err
	}

	if filepath.Base(meant) == meant {
		if inside := filepath.Join(s.Dir, meant); exists(inside) {
			return inside, nil
		}
	}

	return meant, nil
}
