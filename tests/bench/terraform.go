package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/rehearsal"
)

//go:embed cluster.tf
var terraformModule string

// terraform is the command, where there is one, and the providers that the bridged plugins are made of.
type terraform struct {
	command, config string
}

// findTerraform builds the providers for a terraform on PATH. Without one, nothing is compared, which is said.
func (b *bench) findTerraform(ctx context.Context) error {
	command, err := exec.LookPath("terraform")
	if err != nil {
		fmt.Fprintln(b.out, "NOT COMPARED with Terraform: there is no terraform on PATH")

		return nil
	}

	if !strings.HasPrefix(b.engine.ProviderVersions(), "bridged ") || os.Getenv(engine.BridgeVariable) != "" {
		fmt.Fprintln(b.out, "NOT COMPARED with Terraform: its providers are built for the default bridged plugins alone")

		return nil
	}

	providers := filepath.Join(b.dir, "providers")
	build := exec.CommandContext(ctx, "go", "build", "-o", providers+"/", "github.com/bpg/terraform-provider-proxmox",
		"github.com/siderolabs/terraform-provider-talos")
	build.Dir, build.Env = filepath.Join(b.root, "tests", "bench", "terraform"), append(os.Environ(), "GOWORK=off")

	if err := os.Mkdir(providers, 0o700); err != nil {
		return err
	}

	if printed, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("the Terraform providers cannot be compiled: %w\n%s", err, printed)
	}

	config := filepath.Join(b.dir, "terraform.rc")
	text := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    %q = %q\n    %q = %q\n  }\n  direct {}\n}\n",
		"bpg/proxmox", providers, "siderolabs/talos", providers)

	b.terraform = &terraform{command, config}

	return os.WriteFile(config, []byte(text), 0o600)
}

// compare makes the cluster of a row with Terraform, on a lab of its own, from nothing to nothing.
func (b *bench) compare(ctx context.Context, row Row) ([]Step, error) {
	dir, err := os.MkdirTemp(b.dir, "terraform-")
	if err != nil {
		return nil, err
	}

	stack, err := row.stack(b.root, dir)
	if err != nil {
		return nil, err
	}

	r, err := rehearsal.Start(ctx, stack, rehearsal.Options{Engine: b.engine, Latencies: b.latencies, Dir: dir})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // what was measured is measured

	module := filepath.Join(dir, "module")
	if err := errors.Join(os.Mkdir(module, 0o700),
		os.WriteFile(filepath.Join(module, "main.tf"), []byte(terraformModule), 0o600),
		terraformInput(r, row).write(filepath.Join(module, "input.json"))); err != nil {
		return nil, err
	}

	parallel := fmt.Sprintf("-parallelism=%d", b.parallel)

	var steps []Step

	for _, stage := range []struct {
		stage Stage
		args  []string
	}{
		{First, []string{"plan", parallel}},
		{Create, []string{"apply", "-auto-approve", parallel}},
		{Preview, []string{"plan", "-detailed-exitcode", parallel}},
		{Refresh, []string{"apply", "-refresh-only", "-auto-approve", parallel}},
		{Destroy, []string{"destroy", "-auto-approve", parallel}},
	} {
		began := time.Now()

		if err := b.terraform.run(ctx, module, stage.args...); err != nil {
			return nil, blame(fmt.Errorf("%s, %s with Terraform: %w", row, stage.stage, err), r.Lab.Journal())
		}

		if stage.stage == Create {
			if err := r.WaitReady(ctx, ready); err != nil {
				return nil, err
			}
		}

		took := time.Since(began)
		steps = append(steps, Step{Stage: stage.stage, Wall: took})
		fmt.Fprintf(b.out, "%-12s %-14s %6.1fs with Terraform\n", row, stage.stage, took.Seconds())
	}

	return steps, r.Lab.Journal().Unknown()
}

func (t terraform) run(ctx context.Context, dir string, args ...string) error {
	c := exec.CommandContext(ctx, t.command, slices.Concat(args, []string{"-input=false", "-no-color"})...)
	c.Dir = dir
	c.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+t.config, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1")

	if printed, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("terraform %s: %w\n%s", strings.Join(args, " "), err, printed)
	}

	return nil
}

// clusterInput is what the module is told, in its own words.
type clusterInput struct {
	Endpoint           string                   `json:"endpoint"`
	Token              string                   `json:"token"`
	Factory            string                   `json:"factory"`
	Talos              string                   `json:"talos"`
	Kubernetes         string                   `json:"kubernetes"`
	KubernetesEndpoint string                   `json:"kubernetes_endpoint"`
	Gateway            string                   `json:"gateway"`
	First              string                   `json:"first"`
	Hosts              []string                 `json:"hosts"`
	Nodes              map[string]clusterMember `json:"nodes"`
}

type clusterMember struct {
	Role    string `json:"role"`
	Host    string `json:"host"`
	VMID    int    `json:"vmid"`
	MAC     string `json:"mac"`
	Address string `json:"address"`
	CIDR    string `json:"cidr"`
}

func terraformInput(r *rehearsal.Rehearsal, row Row) clusterInput {
	p, login := r.Plan, r.Lab.Credentials()
	in := clusterInput{
		Endpoint: r.Lab.Endpoint(), Token: login.TokenID + "=" + login.TokenSecret, Factory: r.Lab.FactoryURL(),
		Talos: p.Talos, Kubernetes: p.Kubernetes, KubernetesEndpoint: p.Endpoint, Gateway: p.Gateway.String(),
		First: p.ControlPlanes()[0].Address.String(), Nodes: map[string]clusterMember{},
	}

	for i := range row.Hosts {
		in.Hosts = append(in.Hosts, fmt.Sprintf("pve%d", i+1))
	}

	for _, n := range p.Nodes() {
		in.Nodes[n.Name] = memberOf(p, n)
	}

	return in
}

func memberOf(p *plan.Plan, n plan.Node) clusterMember {
	return clusterMember{
		string(n.Role), n.Host, n.VMID, n.MAC, n.Address.String(), netip.PrefixFrom(n.Address, p.Network.Bits()).String(),
	}
}

func (in clusterInput) write(path string) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}

	return os.WriteFile(path, text, 0o600)
}
