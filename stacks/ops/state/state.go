package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// State is a stack's state, and the way to it.
type State struct {
	Stack Stack
	// Dir holds the snapshots; it is made with mode 0700.
	Dir string
	// Keep is how many snapshots stay when one is taken; 0 is all.
	Keep int
	// Out is told what happens.
	Out io.Writer
}

// Snapshots are the stack's.
func (s State) Snapshots() Snapshots {
	return Snapshots{Dir: s.Dir, Project: s.Stack.Project(), Stack: s.Stack.Name()}
}

func (s State) printf(format string, args ...any) { fmt.Fprintf(s.Out, format+"\n", args...) }

// Snapshot keeps the present state in a file.
func (s State) Snapshot(ctx context.Context) (File, error) {
	// The names of what its restores keep would be those of another stack's snapshots.
	if strings.HasSuffix(s.Stack.Name(), preRestore) {
		return File{}, fmt.Errorf("stack %s: snapshots of a stack whose name ends with %q cannot be told apart",
			s.Stack.Name(), preRestore)
	}

	f, err := s.keep(ctx, "")
	if err != nil {
		return File{}, err
	}

	s.printf("snapshot %s, %s", f.Path, count(len(f.Deployment.URNs), "resource"))

	if f.Deployment.Pending > 0 {
		s.printf("  an update was interrupted or runs: %s under way", count(f.Deployment.Pending, "operation"))
	}

	if s.Keep == 0 {
		return f, nil
	}

	removed, err := s.Snapshots().Prune(s.Keep)
	for _, old := range removed {
		s.printf("removed  %s", old.Path)
	}

	return f, err
}

// keep writes the present state to a file.
func (s State) keep(ctx context.Context, suffix string) (File, error) {
	text, err := s.Stack.Export(ctx)
	if err != nil {
		return File{}, fmt.Errorf("exporting the state: %w", err)
	}

	f, err := s.Snapshots().write(ctx, suffix, text)
	if err != nil {
		return File{}, fmt.Errorf("keeping the state in %s: %w", s.Dir, err)
	}

	return f, nil
}

// Check looks at everything that an update needs, changes nothing, and says what it found. All that is wrong is
// reported together; the preview is only made when nothing is.
func (s State) Check(ctx context.Context) error {
	var errs []error

	report := func(what, success string, err error) {
		if err == nil {
			s.printf("%-14s %s", what, success)
		} else {
			s.printf("%-14s FAILED", what)

			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}

	report("lock", "free", s.Stack.Free(ctx))

	d, err := s.present(ctx)
	report("state", "readable, "+count(len(d.URNs), "resource"), err)
	report("configuration", "valid", s.Stack.CheckConfig(ctx))

	if err := errors.Join(errs...); err != nil {
		return err
	}

	changes, err := s.Stack.Preview(ctx, s.Out)
	report("preview", summary(changes), err)

	return errors.Join(errs...)
}

// present reads the state, twice: as it is kept, and as an operation reads it, which decrypts it.
func (s State) present(ctx context.Context) (Deployment, error) {
	text, err := s.Stack.Export(ctx)
	if err != nil {
		return Deployment{}, err
	}

	d, err := decode(text, s.Stack.Project(), s.Stack.Name())
	if err != nil {
		return d, err
	}

	if _, err := s.Stack.Resources(ctx); err != nil {
		return d, err
	}

	if d.Pending > 0 {
		return d, fmt.Errorf("an update was interrupted: the result of %s is unknown; run a refresh",
			count(d.Pending, "operation"))
	}

	return d, nil
}

// Restore makes a snapshot the state again, in five steps: nothing else runs, the present state is kept, the snapshot
// is imported, the state is readable, a preview. It never updates. chosen is read, and refused when it is of no use,
// before anything happens.
func (s State) Restore(ctx context.Context, chosen string) error {
	f, err := s.Snapshots().Read(chosen)
	if err != nil {
		return err
	}

	if len(f.Deployment.URNs) == 0 {
		return fmt.Errorf("%s holds no resource: restoring it would forget everything", chosen)
	}

	if err := s.Stack.Free(ctx); err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}

	s.printf("1. no operation runs on the stack")

	before, err := s.keep(ctx, preRestore)
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}

	if before.Err == nil {
		s.printf("2. the present state is kept in %s, %s", before.Path, count(len(before.Deployment.URNs), "resource"))
	} else {
		s.printf("2. the present state is kept in %s; it is broken: %v", before.Path, before.Err)
	}

	if err := s.Stack.Import(ctx, f.text); err != nil {
		return fmt.Errorf("importing %s: %w", chosen, err)
	}

	s.printf("3. imported %s", chosen)

	urns, err := s.Stack.Resources(ctx)
	if err == nil && !slices.Equal(urns, f.Deployment.URNs) {
		err = fmt.Errorf("it holds %s, the snapshot %s", count(len(urns), "resource"),
			count(len(f.Deployment.URNs), "resource"))
	}

	if err != nil {
		return fmt.Errorf("the state is not what was restored: %w; to go back, restore %s", err, before.Path)
	}

	s.printf("4. the state is readable, %s", count(len(urns), "resource"))
	s.printf("5. preview")

	changes, err := s.Stack.Preview(ctx, s.Out)
	if err != nil {
		return fmt.Errorf("the state is restored, the preview failed: %w; to go back, restore %s", err, before.Path)
	}

	s.printf("restored; an update would change: %s. Make sure that you expect these changes before you run an update",
		summary(changes))

	return nil
}

// Run keeps the present state in a file and then hands a command over to the pulumi CLI. Without the file it does not,
// and no refresh while Proxmox VE does not answer: providers take what they cannot read for gone.
func (s State) Run(ctx context.Context, args []string, pulumi func(ctx context.Context, args ...string) error) error {
	if err := runnable(args); err != nil {
		return err
	}

	if _, err := s.Snapshot(ctx); err != nil {
		return fmt.Errorf("pulumi %s was not run, because there is no snapshot: %w", args[0], err)
	}

	if refreshes(args, s.Stack.Refreshes()) {
		if err := s.Stack.Answers(ctx); err != nil {
			return fmt.Errorf("pulumi %s was not run, because a refresh would forget resources that do not answer: %w",
				args[0], err)
		}
	}

	return pulumi(ctx, args...)
}

// WithProgram has the program run while a stack is destroyed: only then is each VM looked at before it is deleted.
func WithProgram(args []string) []string {
	explicit := slices.ContainsFunc(args, func(a string) bool {
		return a == "--run-program" ||
			strings.HasPrefix(a, "--run-program=")
	})
	if args[0] != "destroy" || explicit {
		return args
	}

	return slices.Insert(slices.Clone(args), 1, "--run-program")
}

// refreshes tells whether a command reads the resources again, in a project that always does or does not.
func refreshes(args []string, always bool) bool {
	by := always

	// The CLI takes its options from the environment, too.
	if set, err := strconv.ParseBool(os.Getenv("PULUMI_OPTION_REFRESH")); err == nil {
		by = set
	}

	for _, a := range args[1:] {
		switch {
		case a == "--refresh", strings.Contains(short(a), "r"):
			by = true
		case strings.HasPrefix(a, "--refresh="):
			by = a != "--refresh=false"
		}
	}

	return args[0] == "refresh" || by
}

// short are the letters of an argument that is a group of short options. One that takes a value ends it.
func short(arg string) string {
	if len(arg) < 2 || arg[0] != '-' || arg[1] == '-' {
		return ""
	}

	if value := strings.IndexAny(arg, "cCmpstvxE"); value > 0 {
		return arg[1 : value+1]
	}

	return arg[1:]
}

// changing are the commands of the pulumi CLI that change state.
var changing = []string{"up", "destroy", "import", "refresh", "state"}

// runnable refuses what would not be guarded.
func runnable(args []string) error {
	if len(args) == 0 || !slices.Contains(changing, args[0]) {
		return fmt.Errorf("run takes one of pulumi's commands %s; others change no state: use pulumi itself",
			strings.Join(changing, ", "))
	}

	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		if name == "--stack" || name == "--cwd" || strings.ContainsAny(short(a), "sC") {
			return fmt.Errorf("%s would make pulumi use another stack than the one whose state was kept: write it before run",
				a)
		}

		if args[0] == "destroy" && (name == "--target" || name == "--exclude" || strings.ContainsAny(short(a), "tx")) {
			return fmt.Errorf("destroy takes a whole cluster (given: %s): of a released cluster it would delete nodes "+
				"without a drain, and without their leaving etcd; to remove a node, delete it from the stack file and run "+
				"'ops run up'", a)
		}
	}

	return nil
}

// summary counts operations, those that change something first named.
func summary(changes map[string]int) string {
	var parts []string

	for _, op := range slices.Sorted(maps.Keys(changes)) {
		if op != "same" && changes[op] > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", changes[op], op))
		}
	}

	if len(parts) == 0 {
		return "nothing"
	}

	return strings.Join(parts, ", ")
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}

	return fmt.Sprintf("%d %s", n, what)
}
