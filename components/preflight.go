package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
)

// Findings are what Proxmox VE says of a plan before anything is registered. Nil means that it did not answer.
type Findings struct {
	// templates are the VMIDs of the templates to clone, by node name. A node is left out when its VM exists and the template
	// is gone.
	templates map[string]int
	// devices are the GPUs to pass through, by node name; left out likewise, and when the host of a node that exists is silent.
	devices map[string]proxmoxapi.PCIDevice
	// unfinished are the nodes whose VM was begun and never became whole, by name.
	unfinished []string
	// sharedImages says that all hosts see what one of them downloads.
	sharedImages bool
	// absent are the VMIDs of nodes whose VM is not there.
	absent map[int]bool
	// machines are the VMs that have VMIDs of the plan, as far as Proxmox VE tells which they are.
	machines map[int]proxmoxvm.Found
	// lacking are the privileges that the credentials lack, by the name of a node that is there.
	lacking map[string][]lack
	// states are those of the VMs that are there, by node name.
	states map[string]VMState
}

// noFindings is what a constructor says that was not given any in an update.
const noFindings = ": Findings are nil, and an update needs what Preflight returns for the plan"

// template is what to clone for a node.
func (f *Findings) template(n plan.Node) pulumi.IntInput {
	if f == nil {
		// Only a preview gets here: what to clone will be known when Proxmox VE answers.
		return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) int { return 0 }).(pulumi.IntOutput)
	}

	if id, ok := f.templates[n.Name]; ok {
		return pulumi.Int(id)
	}

	// The value is ignored, for the VM exists; it must only be one that a VMID can have.
	return pulumi.Int(n.VMID)
}

// device is the GPU of a node; nil when it is not known.
func (f *Findings) device(n plan.Node) *proxmoxapi.PCIDevice {
	if f == nil {
		return nil
	}

	if d, there := f.devices[n.Name]; there {
		return &d
	}

	return nil
}

// gone are the VMIDs of nodes whose VM is not there.
func (f *Findings) gone() map[int]bool {
	if f == nil {
		return nil
	}

	return f.absent
}

// machine is the VM that has a VMID of the plan.
func (f *Findings) machine(vmid int) (proxmoxvm.Found, bool) {
	if f == nil {
		return proxmoxvm.Found{}, false
	}

	found, there := f.machines[vmid]

	return found, there
}

// has says that a node is known to have its VM.
func (f *Findings) has(n plan.Node) bool { return f != nil && !f.absent[n.VMID] }

func (f *Findings) shared() bool { return f != nil && f.sharedImages }

// Unchecked says what nobody knows without Proxmox VE.
const Unchecked = "credentials and privileges, hosts, their memory and clocks, datastores, bridges, VMIDs, templates, images, GPUs and addresses were not checked"

// Preflight asks Talos, Proxmox VE and the network what they think of a plan, before anything is registered. It logs their warnings;
// the error holds everything that is wrong (plan.Problems). A preview goes on without Proxmox VE, and says so.
func Preflight(ctx *pulumi.Context, p *plan.Plan, proxmox Proxmox, network Network) (*Findings, error) {
	var (
		warnings []plan.Problem
		refused  error
	)

	if p.Kind != plan.KindK3s {
		warnings, refused = machineconfig.Check(p)
	}

	s := newSurvey(p, proxmox, network)
	missing := s.run(hookutil.Interruptible(ctx.Context()))

	for _, w := range slices.Concat(p.Warnings, warnings, s.warnings) {
		if err := ctx.Log.Warn(w.String(), nil); err != nil {
			return nil, err
		}
	}

	if (errors.Is(missing, proxmoxapi.ErrUnreachable) || errors.Is(missing, proxmoxapi.ErrOffline)) && ctx.DryRun() {
		return nil, errors.Join(refused, ctx.Log.Warn(missing.Error()+"; "+Unchecked, nil))
	}

	return s.found, errors.Join(refused, explain(missing))
}

// survey is one look at Proxmox VE for a plan.
type survey struct {
	plan    *plan.Plan
	proxmox Proxmox
	network Network
	now     func() time.Time

	vms []proxmoxapi.VM
	// silent are the hosts that were asked and do not answer, with why.
	silent map[string]error
	// absent are the VMIDs of nodes whose VM is not there yet: what a VM was made from harms nobody later when it is gone.
	absent map[int]bool
	// stores are the datastores of the hosts that were asked, by the host's name.
	stores map[string]map[string]proxmoxapi.Store
	// vnets are the bridges that belong to a software-defined network.
	vnets map[string]bool
	// denied says that a privilege is missing, which is why a look may have been refused.
	denied   bool
	found    *Findings
	problems plan.Problems
	warnings []plan.Problem
}

func newSurvey(p *plan.Plan, proxmox Proxmox, network Network) *survey {
	absent := map[int]bool{}

	return &survey{
		plan: p, proxmox: proxmox, network: network, now: time.Now, absent: absent, silent: map[string]error{},
		stores: map[string]map[string]proxmoxapi.Store{}, vnets: map[string]bool{},
		found: &Findings{
			templates: map[string]int{}, devices: map[string]proxmoxapi.PCIDevice{}, absent: absent,
			machines: map[int]proxmoxvm.Found{}, states: map[string]VMState{}, lacking: map[string][]lack{},
		},
	}
}

// run looks at everything. The error holds all that is wrong (plan.Problems), or says that Proxmox VE did not answer.
func (s *survey) run(ctx context.Context) error {
	var err error
	if s.vms, err = s.proxmox.VMs(ctx); err != nil {
		return err
	}

	if err := s.hear(ctx); err != nil {
		return err
	}

	s.lookForVMs()

	var refused []error

	for _, look := range []func(context.Context) error{
		s.lookForSilence, s.lookForHosts, s.checkIdentities, s.lookForUnfinished, s.lookForStates, s.lookForTemplates,
		s.lookForPrivileges, s.lookForVolumes, s.lookForGPUs, s.lookForStores, s.lookForSnippets, s.lookForFirewall,
		s.lookForGroups, s.checkDrives, s.lookForLeaving, s.lookForOccupied,
	} {
		switch err := look(ctx); {
		case errors.Is(err, proxmoxapi.ErrRefused):
			refused = append(refused, err)
		case err != nil:
			return err
		}
	}

	// A privilege that is missing says more than the call that was refused for it.
	for _, err := range refused {
		if !s.denied {
			s.problems = append(s.problems, refusal(err))
		}
	}

	s.warnings = append(s.warnings, elsewhere(s.vms, s.plan)...)

	// Nodes of one pool share a template: what is wrong with it is said once.
	return s.problems.Unique().Err()
}

// lookForVMs finds who has the VMIDs of the plan.
func (s *survey) lookForVMs() {
	at := map[int]proxmoxapi.VM{}
	for _, v := range s.vms {
		at[v.ID] = v
	}

	for _, n := range s.plan.Nodes() {
		v, there := at[n.VMID]
		if !there {
			s.absent[n.VMID] = true
		} else if problem := taken(v, n, s.plan); problem != nil {
			s.problems = append(s.problems, *problem)
		}
	}
}

// checkIdentities reads which VMs have the VMIDs of the plan. Whether they are those of the state is compared when the state is known: a
// program knows it of a resource only once that is registered.
func (s *survey) checkIdentities(ctx context.Context) error {
	planned := map[int]bool{}
	for _, n := range s.plan.Nodes() {
		planned[n.VMID] = true
	}

	var (
		mu    sync.Mutex
		group errgroup.Group
	)

	group.SetLimit(atOnce)

	for _, v := range s.vms {
		// A silent host has been named, with its nodes.
		if !planned[v.ID] || v.Silent {
			continue
		}

		group.Go(func() error {
			var config proxmoxapi.VMConfig

			if !v.Container {
				var err error
				config, err = s.proxmox.Config(ctx, v)

				switch {
				case errors.Is(err, proxmoxapi.ErrRefused):
					return err
				case err != nil:
					mu.Lock()
					defer mu.Unlock()

					s.warnings = append(s.warnings, plan.Problem{
						Path: "proxmox.hosts", Rule: fmt.Sprintf("which VM has VMID %d on host %s is not known: %v", v.ID, v.Host, err),
						Remedy: "bring that host back: until it is known, the VM is not changed",
					})

					return nil
				}
			}

			mu.Lock()
			defer mu.Unlock()

			s.found.machines[v.ID] = proxmoxvm.Found{VM: v, Config: config}

			return nil
		})
	}

	return group.Wait()
}

// lookForFirewall warns where the firewall of a VM would let everything in.
func (s *survey) lookForFirewall(ctx context.Context) error {
	if !s.plan.Firewall {
		return nil
	}

	on, err := s.proxmox.FirewallOn(ctx)
	if err != nil && !errors.Is(err, proxmoxapi.ErrRefused) {
		s.warnings = append(s.warnings, plan.Problem{Path: "firewall.enabled", Rule: fmt.Sprintf("whether the firewall of the datacenter is on is unknown: %v", err)})

		return nil
	}

	if err == nil && !on {
		s.warnings = append(s.warnings, plan.Problem{
			Path: "firewall.enabled", Rule: "has no effect on Proxmox VE yet: the firewall of its datacenter is off", Value: "true",
			Remedy: "see that you keep access to the hosts, then switch it on: Datacenter, Firewall, Options",
		})
	}

	return err
}

// lookForGroups holds that the high-availability groups are there: Proxmox VE takes any name, and does nothing then.
func (s *survey) lookForGroups(ctx context.Context) error {
	var groups []string

	for _, n := range s.plan.Nodes() {
		if n.HAGroup == "" {
			continue
		}

		if groups == nil {
			found, err := s.proxmox.HAGroups(ctx)
			if err != nil {
				return err
			}

			groups = append([]string{}, found...)
		}

		if !slices.Contains(groups, n.HAGroup) {
			s.problems.Add("pools."+n.Pool+".haGroup", "is no high-availability group of this Proxmox VE", n.HAGroup,
				"make it (Datacenter, HA, Groups), or name one that is")
		}
	}

	return nil
}

// lookForStores asks whether one host can download for all.
func (s *survey) lookForStores(ctx context.Context) error {
	for _, pool := range s.plan.Pools {
		if pool.Image.URL == "" && pool.Image.FactoryURL == "" {
			continue
		}

		shared, err := s.proxmox.SharedStores(ctx)
		s.found.sharedImages = shared[s.plan.ImageStore]

		return err
	}

	return nil
}

// explain names what to change when Proxmox VE does not answer, or not us.
func explain(err error) error {
	switch {
	case errors.Is(err, proxmoxapi.ErrUnreachable):
		return plan.Problems{{
			Path: "proxmox.endpoint", Rule: err.Error(), Remedy: "correct it, or see that the host is up and its port open from here",
		}}
	case errors.Is(err, proxmoxapi.ErrOffline):
		return plan.Problems{{Path: "proxmox.endpoint", Rule: err.Error(), Remedy: "unset it: without Proxmox VE there are only previews"}}
	case errors.Is(err, proxmoxapi.ErrUntrusted):
		return plan.Problems{{
			Path: "proxmox.endpoint", Rule: err.Error(),
			Remedy: "let this machine trust the certificate's authority, or set proxmox.insecure",
		}}
	case errors.Is(err, proxmoxapi.ErrRefused):
		return plan.Problems{refusal(err)}
	default:
		return err
	}
}

func refusal(err error) plan.Problem {
	return plan.Problem{
		Path: "proxmox.tokenId", Rule: err.Error(),
		Remedy: "check it with proxmoxTokenSecret (or proxmox.username with proxmoxPassword), and that its role may do this",
	}
}

// taken says who has the VMID of a node, when it is not the node. What a silent host has been heard to say of a VM is old; the VM's tags
// are not.
func taken(v proxmoxapi.VM, n plan.Node, p *plan.Plan) *plan.Problem {
	ours := ofCluster(v, p)

	switch {
	case v.Name == n.Name && !v.Container, ours && (v.Silent || v.Name == ""):
		return nil
	case v.Silent:
		return &plan.Problem{
			Path: "pools." + n.Pool + ".vmids", Value: n.Name,
			Rule:   fmt.Sprintf("%d is a VM on host %s, which does not answer, without the tags %s and %s: whose it is is unknown", v.ID, v.Host, p.Cluster, p.Kind),
			Remedy: "start the host, or choose another range",
		}
	case ours:
		return &plan.Problem{
			Path: "pools." + n.Pool + ".names", Rule: fmt.Sprintf("VMID %d is %q, a node of this cluster: a node keeps its name", v.ID, v.Name),
			Value: n.Name, Remedy: fmt.Sprintf("where the VM was renamed, run 'qm set %d --name %s' on host %s; where the configuration changed, "+
				"leave the names, and the cluster's and the pool's, as they were", v.ID, n.Name, v.Host),
		}
	default:
		return &plan.Problem{
			Path: "pools." + n.Pool + ".vmids", Rule: fmt.Sprintf("%d is taken by %q on host %s", v.ID, v.Name, v.Host),
			Value: n.Name, Remedy: "choose another range, or remove that machine",
		}
	}
}

// ofCluster says that a VM has the tags of a cluster's nodes.
func ofCluster(v proxmoxapi.VM, p *plan.Plan) bool {
	return slices.Contains(v.Tags, p.Cluster) && slices.Contains(v.Tags, string(p.Kind))
}
