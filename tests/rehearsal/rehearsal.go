package rehearsal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/build"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/guests"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/ubuntu"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/upstream"
)

// Options of a rehearsal.
type Options struct {
	// Engine runs the program.
	Engine *engine.Engine
	// Proxmox is the version of Proxmox VE; empty: the newest that the lab knows, but 8 where the stack names a
	// high-availability group, which later ones do not have.
	Proxmox world.Version
	// Latencies of the lab; the zero value takes no time.
	Latencies timeline.Latencies
	// Dir keeps state and credentials; it is made with mode 0700.
	Dir string
	// Silent names nodes whose machines get no address from DHCP, so that they never answer.
	Silent []string
	// Releases are the versions of K3s that there are; empty: all.
	Releases []string
	// Kubernetes is what runs on control planes; empty: LightKubernetes.
	Kubernetes Kubernetes
	// Shared names datastores that all hosts see; others are each host's own.
	Shared []string
	// Server has the stack's VMs instead of the lab's own Proxmox VE; nil: the lab's.
	Server *Server
	// Workspace options come after those of the backend, and win.
	Workspace []auto.LocalWorkspaceOption
}

// broadcast is how often hosts say what has become of their VMs (pve-manager: pvestatd).
const broadcast = 10 * time.Second

// Kubernetes says which etcd and Kubernetes there are in the lab.
type Kubernetes string

// What can be on control planes.
const (
	// LightKubernetes are the lab's own models, in memory.
	LightKubernetes Kubernetes = "light"
	// RealKubernetes are the released etcd and control plane; only kubelets and containers are played.
	RealKubernetes Kubernetes = "real"
)

// ParseKubernetes reads what a person wrote.
func ParseKubernetes(text string) (Kubernetes, error) {
	switch k := Kubernetes(text); k {
	case "", LightKubernetes, RealKubernetes:
		return k, nil
	default:
		return "", fmt.Errorf("%q is neither light nor real", text)
	}
}

// Rehearsal is a stack and the lab it runs against.
type Rehearsal struct {
	Lab *lab.Lab
	// Talos or Ubuntu is what runs in the machines; the other is nil.
	Talos   *talos.Firmware
	Ubuntu  *ubuntu.Firmware
	Backend *engine.Backend
	Stack   auto.Stack
	// Plan of the stack as the lab sees it.
	Plan *plan.Plan
	// From and To are the stack's network and the loopback network it is mapped onto.
	From, To netip.Prefix

	engine    *engine.Engine
	rewritten *Stack
	before    world.State
	guests    *guests.Guests
	dir       string
	workspace []auto.LocalWorkspaceOption

	// Destroying tells the program that a run destroys the stack, as the variable of ops run does.
	Destroying atomic.Bool
}

// told is what the program is told in addition to its configuration. The lab's hosts are not for the file of known
// hosts of whoever rehearses, and need no host keys, also in a pipeline.
func (r *Rehearsal) told(c *stacks.Config) {
	c.Destroying = c.Destroying || r.Destroying.Load()
	c.Pipeline, c.KnownHosts = new(false), os.DevNull
}

// Start checks the stack, starts a lab with what the stack expects to find, and opens the rewritten stack in a backend
// of its own. Nothing is deployed yet. The lab runs until Close, also when ctx ends: tearing down needs it still.
func Start(ctx context.Context, s *Stack, o Options) (*Rehearsal, error) {
	config, err := s.parse()
	if err != nil {
		return nil, err
	}

	original, err := config.Plan()
	if err != nil {
		return nil, err
	}

	released, err := o.released(ctx)
	if err != nil {
		return nil, err
	}

	reservation, err := lab.ReserveNetwork(original.Network.Bits())
	if err != nil {
		return nil, err
	}

	toLab := reservation.MapAddr
	r := &Rehearsal{
		From: original.Network, To: reservation.Map(original.Network), dir: o.Dir, engine: o.Engine,
		workspace: o.Workspace,
	}

	c := labOf(original, o.Shared)
	dhcp(&c, original, config, o.Silent, toLab)

	if o.Server != nil {
		if err := o.Server.agents(&c, config, original.Network.Bits(), toLab); err != nil {
			return nil, errors.Join(err, reservation.Close())
		}
	}

	c.Network = reservation
	c.Latencies = o.Latencies
	c.Version = o.Proxmox
	c.Broadcast = broadcast

	if c.Version == "" && len(c.HAGroups) > 0 {
		c.Version = world.Version8
	}

	if login := config.Proxmox.SSH; login != nil {
		c.SSH.Username = login.Username
	}

	var firmware machine.Firmware

	c.Firmware = func(services lab.Services) machine.Firmware {
		if original.Distribution == spec.DistributionK3s {
			machines := ubuntuOptions(services, o.Releases)
			machines.Upstream, machines.Dir = released, filepath.Join(o.Dir, "kubernetes")
			r.Ubuntu = ubuntu.New(machines)
			firmware = r.Ubuntu

			return firmware
		}

		nodes := nodeOptions(services)
		nodes.Upstream, nodes.Dir = released, filepath.Join(o.Dir, "kubernetes")
		r.Talos = talos.New(nodes)
		firmware = r.Talos

		return firmware
	}

	if r.Lab, err = lab.Start(context.WithoutCancel(ctx), c); err != nil {
		return nil, errors.Join(err, reservation.Close())
	}

	publish(r.Lab.Factory(), original)
	r.before = r.Lab.World().Snapshot()

	if o.Server != nil {
		if err := r.moveTo(ctx, o.Server, original, c, firmware); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}

	if err := r.open(ctx, s, config, o, toLab); err != nil {
		return nil, errors.Join(err, r.Close())
	}

	return r, nil
}

// released are etcd and Kubernetes as they are released, nil where the lab's own do.
func (o Options) released(ctx context.Context) (*upstream.Binary, error) {
	if o.Kubernetes != RealKubernetes {
		return nil, nil //nolint:nilnil // none is wanted
	}

	return upstream.Open(ctx)
}

// open rewrites the stack and opens it.
func (r *Rehearsal) open(ctx context.Context, s *Stack, original config.Config, o Options,
	toLab func(netip.Addr) netip.Addr,
) error {
	var err error

	to := accessTo(r.Lab)
	if o.Server != nil {
		to = o.Server.access()
	}

	if r.rewritten, err = s.rewrite(original, r.Lab, to, r.From, toLab); err != nil {
		return err
	}

	config, err := r.rewritten.parse()
	if err != nil {
		return fmt.Errorf("the configuration does not survive being mapped onto %s: %w", r.To, err)
	}

	if r.Plan, err = config.Plan(); err != nil {
		return err
	}

	if r.Backend, err = o.Engine.NewBackend(filepath.Join(o.Dir, "backend")); err != nil {
		return err
	}

	r.Stack, err = r.Open(ctx, s.Name)

	return err
}

// Open opens the rewritten configuration as a stack of the rehearsal's backend.
func (r *Rehearsal) Open(ctx context.Context, name string) (auto.Stack, error) {
	work := filepath.Join(r.dir, "work", name)
	if err := os.MkdirAll(work, 0o700); err != nil {
		return auto.Stack{}, err
	}

	if err := r.WriteStackFile(filepath.Join(work, "Pulumi."+name+".yaml")); err != nil {
		return auto.Stack{}, err
	}

	stack, err := r.Backend.InlineStack(ctx, config.Project, name, stacks.ProgramIn(work, r.told), nil,
		append([]auto.LocalWorkspaceOption{auto.WorkDir(work)}, r.workspace...)...)
	if err != nil {
		return auto.Stack{}, err
	}

	env, err := r.Env()
	if err != nil {
		return auto.Stack{}, err
	}

	return stack, errors.Join(stack.Workspace().SetEnvVars(env), stack.SetAllConfig(ctx, r.Secrets()))
}

// Env are variables for the CLI in addition to those of the backend: a home of its own, for the provider notes the
// hosts that it logs in to among those that the user knows. What Go keeps at home stays there.
func (r *Rehearsal) Env() (map[string]string, error) {
	home, err := filepath.Abs(filepath.Join(r.dir, "home"))
	if err != nil {
		return nil, err
	}

	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}

	env := map[string]string{"HOME": home, "GOPATH": build.Default.GOPATH}

	if cache, err := os.UserCacheDir(); err == nil {
		env["GOCACHE"] = cmp.Or(os.Getenv("GOCACHE"), filepath.Join(cache, "go-build"))
	}

	if config, err := os.UserConfigDir(); err == nil {
		env["GOENV"] = cmp.Or(os.Getenv("GOENV"), filepath.Join(config, "go", "env"))
	}

	return env, nil
}

// WriteStackFile writes the rewritten configuration, without its secrets, as a stack file.
func (r *Rehearsal) WriteStackFile(path string) error {
	public := &Stack{values: map[string]string{}, policy: r.rewritten.policy}

	for key, value := range r.rewritten.values {
		if _, secret := r.Secrets()[config.Project+":"+key]; !secret {
			public.values[key] = value
		}
	}

	return public.write(path)
}

// Secrets are the secret keys of the rewritten configuration.
func (r *Rehearsal) Secrets() auto.ConfigMap {
	secrets := auto.ConfigMap{}

	for _, key := range config.SecretKeys {
		if value, ok := r.rewritten.values[key]; ok {
			secrets[config.Project+":"+key] = auto.ConfigValue{Value: value, Secret: true}
		}
	}

	return secrets
}

// Engine is what runs the program.
func (r *Rehearsal) Engine() *engine.Engine { return r.engine }

// Close stops the lab. State stays in the rehearsal's directory.
func (r *Rehearsal) Close() error {
	var err error
	if r.guests != nil {
		err = r.guests.Close()
	}

	return errors.Join(err, r.Lab.Close())
}

// ubuntuOptions are what machines with Ubuntu take from the lab around them.
func ubuntuOptions(s lab.Services, releases []string) ubuntu.Options {
	return ubuntu.Options{
		Journal: s.Journal, Timeline: s.Timeline, Latencies: s.Latencies, Lease: nodeOptions(s).Lease, Releases: releases,
	}
}

// nodeOptions are what the nodes take from the lab around them.
func nodeOptions(s lab.Services) talos.Options {
	return talos.Options{
		Journal: s.Journal, Timeline: s.Timeline, Latencies: s.Latencies, Schematic: talos.Schematics(s.Factory),
		Release: s.Factory.HasVersion,
		Lease: func(nic machine.NIC) (netip.Prefix, bool) {
			address, ok := s.DHCP(nic.MAC)

			return netip.PrefixFrom(address, s.Network.Bits()), ok
		},
	}
}
