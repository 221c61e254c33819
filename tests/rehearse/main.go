// Command rehearse brings a stack up on the lab: the real program, the real providers and the real engine, against a
// Proxmox VE with Talos in it that lives on loopback. It is what a newcomer runs first.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/command"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

const usage = `Bring a stack up on the lab, and show what became of it.

  go run ./tests/rehearse <stack>      a stack's name (Pulumi.<stack>.yaml) or the path of its file

Flags:
`

type options struct {
	stack     string
	keep      bool
	destroy   bool
	latencies timeline.Latencies
	providers string
	plan      string
	policy    bool
	proxmox   world.Version
	// kubernetes is which there is in the lab.
	kubernetes rehearsal.Kubernetes
}

func main() {
	command.Main(func(ctx context.Context, args []string, out io.Writer) error {
		o, err := parse(args)
		if err != nil {
			return err
		}

		return run(ctx, o, out)
	})
}

func parse(args []string) (options, error) {
	var (
		o      options
		fast   bool
		asked  string
		kube   string
		slower map[string]string
	)

	flags := pflag.NewFlagSet("rehearse", pflag.ContinueOnError)
	flags.BoolVar(&o.keep, "keep", false,
		"leave the lab running, with kubeconfig and talosconfig written, until interrupted")
	flags.BoolVar(&o.destroy, "destroy", false, "tear the stack down at the end and show that nothing is left")
	flags.BoolVar(&fast, "fast", false, "let nothing in the lab take time")
	flags.StringToStringVar(&slower, "latency", nil, "how long things take in the lab, for example clone=10s,boot=20s")
	flags.StringVar(&o.providers, "providers", "auto", "where the provider plugins come from: published, bridged or auto")
	flags.StringVar(&asked, "proxmox", "", "the Proxmox VE version that the lab emulates: 8.4 or 9.2 (default)")
	flags.StringVar(&kube, "kubernetes", "light",
		"what control planes run: light, models of etcd and Kubernetes, or real, the released ones")
	flags.StringVar(&o.plan, "plan", "", "show what is planned, as text or svg, and start nothing")
	flags.Lookup("plan").NoOptDefVal = "text"
	flags.BoolVar(&o.policy, "policy", false,
		"run the policy pack too: show what it advises, and stop at what it enforces")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}

	if err := flags.Parse(args); err != nil {
		return o, err
	}

	if flags.NArg() != 1 {
		flags.Usage()

		return o, errors.New("name one stack, for example: go run ./tests/rehearse dev")
	}

	o.stack = flags.Arg(0)

	if !fast {
		o.latencies = timeline.DefaultLatencies()
	}

	var err error
	if o.kubernetes, err = rehearsal.ParseKubernetes(kube); err != nil {
		return o, fmt.Errorf("--kubernetes: %w", err)
	}

	if asked != "" {
		if o.proxmox, err = world.ParseVersion(asked); err != nil {
			return o, err
		}
	}

	return o, o.latencies.Set(slower)
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	root, err := rehearsal.Root()
	if err != nil {
		return err
	}

	stack, err := rehearsal.Find(root, o.stack)
	if err != nil {
		return err
	}

	if o.plan != "" {
		return showPlan(root, stack, o.plan, out)
	}

	if err := stack.Check(); err != nil {
		return err
	}

	providers, err := engine.ParseProviders(o.providers)
	if err != nil {
		return err
	}

	e, err := engine.Open(ctx, engine.Options{Providers: providers, Log: out})
	if err != nil {
		return err
	}

	dir, remove, err := directory(root, stack.Name, o.keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()

	r, err := rehearsal.Start(ctx, stack, rehearsal.Options{
		Engine: e, Latencies: o.latencies, Dir: dir, Proxmox: o.proxmox, Kubernetes: o.kubernetes,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()

	fmt.Fprintf(out, "lab at %s; the stack's network %s is %s here\n\n", r.Lab.Endpoint(), r.From, r.To)

	var packs []string
	if o.policy {
		packs = append(packs, filepath.Join(root, "policy"))
	}

	if err := up(ctx, r, packs, out); err != nil {
		// What an interrupt leads to in the providers is of no use to the operator.
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}

		return err
	}

	if o.keep {
		if err := look(ctx, r, dir, out); err != nil {
			return err
		}
	}

	if o.destroy {
		// An interrupt ends the looking around, not the tearing down.
		return destroy(context.WithoutCancel(ctx), r, out)
	}

	return nil
}

// up deploys the stack and shows what became of it. What the lab does not know is an error by itself, and may be why
// there is another.
func up(ctx context.Context, r *rehearsal.Rehearsal, packs []string, out io.Writer) (err error) {
	defer func() {
		for _, what := range r.Lab.Journal().Ignored() {
			fmt.Fprintf(out, "the lab did nothing about %s\n", what)
		}

		for _, call := range r.Lab.Journal().Unrecorded() {
			fmt.Fprintf(out, "the lab's answer was not compared with Proxmox VE: %s\n", call)
		}

		err = errors.Join(err, r.Lab.Journal().Unknown())
	}()

	start := time.Now()
	p := progress{out: out, start: start, said: map[string]bool{}}

	if len(packs) > 0 {
		// Rules about the whole stack have their say before anything is made.
		p.quiet = true
		if err := p.run(func(p progress) error { return p.preview(ctx, r.Stack, packs) }); err != nil {
			return err
		}

		p.quiet = false
	}

	if err := p.run(func(p progress) error { return p.up(ctx, r.Stack, packs) }); err != nil {
		return err
	}

	if err := r.WaitReady(ctx, 2*time.Minute); err != nil {
		return err
	}

	reached := "all nodes ready"
	if r.Plan.Bootstrap == spec.BootstrapExternal {
		reached = "all nodes wait to be configured"
	}

	fmt.Fprintf(out, "%7s  %s\n\n", elapsed(start), reached)
	printNodes(out, r)
	printDownloads(out, r.Lab.World().Downloads())
	printTimes(out, r.Lab.Timeline().Report())

	return nil
}

// look leaves the lab running until the operator has seen enough.
func look(ctx context.Context, r *rehearsal.Rehearsal, dir string, out io.Writer) error {
	var (
		files rehearsal.Files
		err   error
	)

	// Who configures the nodes has the credentials.
	if r.Plan.Bootstrap != spec.BootstrapExternal {
		if files, err = r.WriteCredentials(ctx, dir); err != nil {
			return err
		}
	}

	shell, err := r.Shell()
	if err != nil {
		return err
	}

	printHints(out, r, files, shell)
	<-ctx.Done()
	fmt.Fprintf(out, "\n%s stays: it holds the state and its passphrase. Delete it when you no longer need it.\n", dir)

	return nil
}

func destroy(ctx context.Context, r *rehearsal.Rehearsal, out io.Writer) error {
	fmt.Fprintln(out, "destroying the stack")

	start := time.Now()
	if err := (progress{out: out, start: start}).run(
		func(p progress) error { return p.destroy(ctx, r.Stack) }); err != nil {
		return err
	}

	if left := r.Leftovers(); left != "" {
		return fmt.Errorf("the lab is not as it was before:\n%s", left)
	}

	held, kept := r.Lab.World().Snapshot(), len(r.Kept())
	fmt.Fprintf(out, "%7s  nothing is left: the lab holds what it held before, %d templates and %d other volumes",
		elapsed(start), len(held.VMs), len(held.Volumes)-len(held.VMs)-kept)

	if kept > 0 {
		fmt.Fprintf(out, "; downloaded images, which are kept: %d", kept)
	}

	fmt.Fprintln(out)

	return r.Lab.Journal().Unknown()
}

// directory is where state and credentials go: one that stays, below the project, or one that is removed at the end.
func directory(root, stack string, keep bool) (string, func() error, error) {
	if keep {
		return keptDirectory(filepath.Join(root, "rehearsal", stack))
	}

	dir, err := os.MkdirTemp("", "rehearsal-")

	return dir, func() error { return os.RemoveAll(dir) }, err
}

// keptDirectory creates the directory, and holds it against other rehearsals of the stack until it is released. The
// kernel releases it when the process dies.
func keptDirectory(dir string) (string, func() error, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", nil, err
	}

	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, err
	}

	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("another rehearsal keeps %s: end it first, or rehearse without --keep", dir)
	}

	if err == nil {
		// State of an earlier lab is of no use: that lab is gone.
		err = errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
	}

	if err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}

	return dir, lock.Close, nil
}
