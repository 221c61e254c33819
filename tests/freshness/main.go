// Command freshness compares the versions that this project knows with those that are released, and says what the
// program answers a stack that asks for the newest.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/blang/semver/v4"
	"github.com/spf13/pflag"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/command"
)

const usage = `Compare the versions of this project with those that are released.

  go run ./tests/freshness             from a checkout of the repository

It fails if the program refuses the newest Talos or Kubernetes.

Flags:
`

func main() {
	command.Main(func(ctx context.Context, args []string, out io.Writer) error {
		flags := pflag.NewFlagSet("freshness", pflag.ContinueOnError)
		flags.Usage = func() { fmt.Fprint(os.Stderr, usage+flags.FlagUsages()) }
		root := flags.String("root", ".", "the checkout")

		if err := flags.Parse(args); err != nil {
			return err
		}

		return run(ctx, *root, goCommand{}, out)
	})
}

// dependency is something whose version the project pins.
type dependency struct{ name, dir, module string }

const (
	talosName      = "Talos"
	kubernetesName = "Kubernetes"
)

var dependencies = []dependency{
	{talosName, ".", "github.com/siderolabs/talos/pkg/machinery"},
	{kubernetesName, "tests/kubernetes", "k8s.io/kubernetes"},
	{"etcd", "tests/kubernetes", "go.etcd.io/etcd/server/v3"},
	{"Talos provider", ".", "github.com/pulumiverse/pulumi-talos/sdk"},
	{"Talos provider, bridged", "tests/plugins", "github.com/siderolabs/terraform-provider-talos"},
	{"Proxmox VE provider", ".", "github.com/muhlba91/pulumi-proxmoxve/sdk/v6"},
	{"Proxmox VE provider, bridged", "tests/plugins", "github.com/bpg/terraform-provider-proxmox"},
	{"Pulumi", ".", "github.com/pulumi/pulumi/sdk/v3"},
}

// registry knows modules by the directory of the module that requires them.
type registry interface {
	// required is the version of a module that another requires.
	required(ctx context.Context, dir, module string) (string, error)
	// released is the version that a query names, such as "latest".
	released(ctx context.Context, dir, module, query string) (string, error)
}

// goCommand asks the go command, and with it the module proxy.
type goCommand struct{}

func (goCommand) required(ctx context.Context, dir, module string) (string, error) {
	return goList(ctx, dir, module)
}

func (goCommand) released(ctx context.Context, dir, module, query string) (string, error) {
	return goList(ctx, dir, module+"@"+query)
}

func goList(ctx context.Context, dir, what string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-json", what)
	list.Dir = dir

	var said strings.Builder
	list.Stderr = &said

	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}

	var found struct{ Version string }

	return found.Version, json.Unmarshal(out, &found)
}

// run writes the report.
func run(ctx context.Context, root string, from registry, out io.Writer) error {
	newest := map[string]string{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)

	fmt.Fprintln(table, "\tHERE\tNEWEST\t")

	for _, d := range dependencies {
		here, there, err := compare(ctx, filepath.Join(root, d.dir), d.module, from)
		if err != nil {
			return fmt.Errorf("%s: %w", d.module, err)
		}

		newest[d.name] = there
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", d.name, here, there, remark(here, there))
	}

	if err := table.Flush(); err != nil {
		return err
	}

	return errors.Join(answer(out, newest[talosName], newest[kubernetesName]), ctx.Err())
}

func remark(here, there string) string {
	switch {
	case here == there:
		return ""
	case minor(here) == minor(there):
		return "a patch release"
	case major(here) != major(there):
		return "a new major version"
	default:
		return "a new minor version"
	}
}

func minor(version string) string {
	v, err := semver.ParseTolerant(version)
	if err != nil {
		return version
	}

	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

func major(version string) string {
	number, _, _ := strings.Cut(minor(version), ".")

	return number
}

// compare returns the version that is required, and the newest that is released.
func compare(ctx context.Context, dir, module string, from registry) (here, newest string, err error) {
	if here, err = from.required(ctx, dir, module); err != nil {
		return "", "", err
	}

	// A proxy may serve versions of a module and not the list of them.
	if newest, err = from.released(ctx, dir, module, "latest"); err != nil {
		newest, err = probe(ctx, dir, module, here, from)
	}

	if !later(newest, here) {
		newest = here
	}

	for _, next := range majors(module) {
		if found, err := from.released(ctx, dir, next, "latest"); err == nil && later(found, newest) {
			newest = found
		}
	}

	return here, newest, err
}

// majors are the paths of a module with the next major versions: each is a module of its own.
func majors(module string) []string {
	base, suffix := path.Split(module)

	number, err := strconv.Atoi(strings.TrimPrefix(suffix, "v"))
	if err != nil || !strings.HasPrefix(suffix, "v") {
		return nil
	}

	var all []string
	for i := range probes {
		all = append(all, fmt.Sprintf("%sv%d", base, number+i+1))
	}

	return all
}

func later(a, b string) bool {
	x, errX := semver.ParseTolerant(a)
	y, errY := semver.ParseTolerant(b)

	return errX == nil && errY == nil && x.GT(y)
}

// probes is how many versions after the one that is required are asked for.
const probes = 3

// probe asks for the versions that would follow. One that is missing says nothing about the next.
func probe(ctx context.Context, dir, module, here string, from registry) (string, error) {
	v, err := semver.ParseTolerant(here)
	if err != nil {
		return "", err
	}

	var next []string

	for i := range uint64(probes) {
		next = append(next, fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor, v.Patch+i+1),
			fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor+1, i))
	}

	newest := here

	for _, version := range next {
		if found, err := from.released(ctx, dir, module, version); err == nil && later(found, newest) {
			newest = found
		}
	}

	if newest == here {
		// Where not even this one is served, nothing is known.
		_, err = from.released(ctx, dir, module, here)
	}

	return newest, err
}

// answer says what the program says to a stack of the newest versions. The error is its refusal.
func answer(out io.Writer, talos, kubernetes string) error {
	p, err := planner.Plan(spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "pve1"}}},
		Cluster: spec.Cluster{Name: "newest", Versions: spec.Versions{Talos: talos, Kubernetes: kubernetes}},
		Network: spec.Network{CIDR: "192.0.2.0/24", Gateway: "192.0.2.1"},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "192.0.2.11"},
			"worker":  {Role: spec.RoleWorker, Count: new(1), Addresses: "192.0.2.21"},
		},
	})

	var warnings []spec.Problem

	if err == nil {
		warnings, err = machineconfig.Check(p)
		warnings = append(slices.Clone(p.Warnings), warnings...)
	}

	fmt.Fprintf(out, "\nA stack that asks for Talos %s and Kubernetes %s ", talos, kubernetes)

	if err != nil {
		fmt.Fprintf(out, "is refused: %v\n", err)

		return fmt.Errorf("the program refuses Talos %s with Kubernetes %s: stacks/docs/maintainers.md describes how "+
			"to move to a new minor version", talos, kubernetes)
	}

	fmt.Fprintln(out, "is accepted.")

	for _, w := range warnings {
		fmt.Fprintf(out, "  %s\n", w)
	}

	return nil
}
