// Command ops is the operator's command: it snapshots and restores a stack's state, runs pulumi behind a snapshot,
// shows what a stack file plans and what an update would do, and imports a cluster whose state is lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

	err := command(os.Stdout).ExecuteContext(ctx)

	stop()

	// What pulumi ended with is what its caller wants to know; it has said why.
	var ended endedError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		os.Exit(ended.ExitCode())
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "error: "+err.Error())
		os.Exit(1)
	}
}

func command(out io.Writer) *cobra.Command {
	o := &options{out: out}

	root := &cobra.Command{
		Use: "ops", Short: "Protect a stack's state, show what an update does, and export its contract to other tools",
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			noteRename(c)

			return o.findProject(c)
		},
	}
	root.SetOut(out)

	flags := root.PersistentFlags()
	flags.StringVarP(&o.stack, "stack", "s", "", "the stack; the selected one when left out")
	flags.StringVarP(&o.project, cwdFlag, "C", "", "the directory of Pulumi.yaml; the nearest one upwards when left out")
	flags.StringVar(&o.dir, "dir", "state-backups", "where snapshots are kept, seen from the project")

	root.AddCommand(snapshot(o), list(o), check(o), restore(o), run(o), importCluster(o))
	root.AddCommand(planOf(o), roleOf(o), impactOf(o), etcd(o), moduleOf(o))
	root.AddCommand(exports(), addresses(), fromTerraform(), fromCluster())

	return root
}

// noteRename says which command an old name has become. Old names are cobra's aliases, and go on working for one
// release.
func noteRename(c *cobra.Command) {
	if called := c.CalledAs(); called != "" && called != c.Name() {
		fmt.Fprintf(c.ErrOrStderr(), "note: the command %s is now called %s; the old name is removed in the next release\n",
			called, c.Name())
	}
}
