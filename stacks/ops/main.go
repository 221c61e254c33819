// Command ops is the operator's command: it snapshots and restores a stack's state, runs pulumi behind a snapshot,
// shows what a stack file plans and what an update would do, and imports a cluster whose state is lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/pulumi/pulumi/sdk/v3"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/spf13/cobra"

	"talos-proxmox/stacks/ops/importcmd"
	"talos-proxmox/stacks/ops/state"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

	err := command(os.Stdout).ExecuteContext(ctx)

	stop()

	// What pulumi ended with is what its caller wants to know; it has said why.
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		os.Exit(ended.ExitCode())
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "error: "+err.Error())
		os.Exit(1)
	}
}

// options are the flags that all commands share.
type options struct {
	project, stack, dir string
	out                 io.Writer
}

func command(out io.Writer) *cobra.Command {
	o := &options{out: out}

	root := &cobra.Command{
		Use: "ops", Short: "Guard a stack's state, see what an update does, and hand its contract to other tools",
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

	root.AddCommand(snapshot(o), list(o), check(o), restore(o), run(o), bringBack(o), planOf(o), roleOf(o), impactOf(o))
	root.AddCommand(etcd(o), exports(), addresses(), fromTerraform(), fromCluster(), moduleOf(o))

	return root
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

// noteRename says which command an old name has become. Old names are cobra's aliases, and go on working for one
// release.
func noteRename(c *cobra.Command) {
	if called := c.CalledAs(); called != "" && called != c.Name() {
		fmt.Fprintf(c.ErrOrStderr(), "note: the command %s is now called %s; the old name is removed in the next release\n",
			called, c.Name())
	}
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
	c.Flags().IntVar(keep, "keep", 0,
		"remove the oldest snapshots beyond this number, but none that a restore has kept; 0 removes none")
}

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
		Use: "check", Short: "See that an update could run: no lock, state readable, configuration valid, preview",
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

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

func run(o *options) *cobra.Command {
	var keep int

	c := &cobra.Command{
		Use:   "run up|destroy|import|refresh|state [arguments of pulumi]",
		Short: "Take a snapshot, then let pulumi run; without the snapshot it does not",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			s.Keep = keep

			if err := compile(c.Context(), o.project); err != nil {
				return err
			}

			return s.Run(c.Context(), args, func(_ context.Context, args ...string) error {
				return pulumi(o.project, append(state.WithProgram(args), "--stack", o.stack))
			})
		},
	}
	// What follows pulumi's command is pulumi's.
	c.Flags().SetInterspersed(false)
	keepFlag(c, &keep)

	return c
}

// compile builds the program of a project whose Pulumi.yaml names a binary of it, so that pulumi runs no outdated one.
// It takes a second where nothing has changed. Without what a debugger needs, linking is half the work.
func compile(ctx context.Context, project string) error {
	path, err := workspace.DetectProjectPathFrom(project)
	if err != nil {
		return err
	}

	settings, err := workspace.LoadProject(path)
	if err != nil {
		return err
	}

	binary, named := settings.Runtime.Options()["binary"].(string)
	if !named || settings.Runtime.Name() != "go" || !exists(filepath.Join(project, "main.go")) {
		return nil
	}

	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, ".")
	build.Dir, build.Stdout, build.Stderr = project, os.Stdout, os.Stderr

	if err := build.Run(); err != nil {
		return fmt.Errorf("building %s, which runtime.options.binary of Pulumi.yaml names: %w", binary, err)
	}

	return nil
}

func bringBack(o *options) *cobra.Command {
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

			return next(o, files)
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
	// pulumi runs in the project's directory.
	file, err := filepath.Rel(o.project, files.Import)
	if err != nil {
		return err
	}

	ops := "go run ./stacks/ops"
	if o.project != "." {
		ops += " -C " + o.project
	}

	ops += " -s " + o.stack

	fmt.Fprintf(o.out, "\nwrote %s; next:\n\n", files.Import)
	fmt.Fprintf(o.out, "  %s run import --file %s --protect=false --generate-code=false\n  %s run up --refresh\n", ops,
		file, ops)

	if files.Secrets != "" {
		fmt.Fprintf(o.out, "  rm -r %s\n", filepath.Dir(files.Secrets))
	}

	return nil
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

	dir := o.dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(o.project, dir)
	}

	return state.State{Stack: stack, Dir: dir, Out: o.out}, nil
}
