package proxmoxvm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// Discovery is how the address of a node is found that is not set: its guest agent reports it.
type Discovery struct {
	// Network is what the address must lie in.
	Network netip.Prefix
	// Except is an address that belongs to no node, though one may hold it: a virtual one. It may be invalid.
	Except netip.Addr
	// Timeout bounds the wait for the guest agent.
	Timeout time.Duration
	// Optional makes an address that cannot be found no error.
	Optional bool
	// Teardown says that the cluster is about to be destroyed: a VM that is off needs no address.
	Teardown bool
	// Proxmox is asked when the provider has not seen the address; nil: it is not asked.
	Proxmox Proxmox

	OnFound func(address string)
}

// DiscoveryOf is how addresses of a cluster's nodes are found; nil where they are set.
func DiscoveryOf(p *plan.Plan, proxmox Proxmox) *Discovery {
	if p.Addressing != spec.AddressingAgent {
		return nil
	}

	return &Discovery{
		Network: p.Network, Except: p.VIP, Timeout: p.AgentTimeout, Teardown: p.Teardown, Proxmox: proxmox,
	}
}

// find is the address that the guest agent of a node reports. It is unknown in a preview until it has been seen once,
// and nil when it cannot be found and need not be.
func (d *Discovery) find(ctx *pulumi.Context, n plan.Node, machineVM *vm.VirtualMachine) pulumi.StringPtrOutput {
	seen := pulumi.All(machineVM.NetworkInterfaceNames, machineVM.MacAddresses, machineVM.Ipv4Addresses,
		machineVM.Ipv6Addresses,
		machineVM.Started)

	return seen.ApplyT(func(seen []any) (pulumi.StringPtrOutput, error) {
		links := linksOf(seen[0].([]string), seen[1].([]string), seen[2].([][]string), seen[3].([][]string))

		found, err := d.choose(n, links)
		if err != nil {
			return pulumi.StringPtrOutput{}, err
		}

		// The provider asks no agent of a VM that it has found off, and does so while one restarts.
		started := seen[4].(*bool)
		unasked := len(links) == 0 && started != nil && !*started

		if !found.IsValid() && unasked && ctx.DryRun() && d.Proxmox != nil {
			short, cancel := context.WithTimeout(hookutil.Interruptible(ctx.Context()), wait.RequestTimeout)
			found, _ = d.once(short, n) // It will be known when Proxmox VE answers.

			cancel()
		}

		if !found.IsValid() && ctx.DryRun() {
			return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) *string { return nil }).(pulumi.StringPtrOutput), nil
		}

		if !found.IsValid() {
			if found, err = d.ask(hookutil.Interruptible(ctx.Context()), n, len(links) > 0 || unasked,
				hookutil.Progress(ctx, n.Name)); err != nil &&
				!d.Optional {
				return pulumi.StringPtrOutput{}, err
			}
		}

		if !found.IsValid() {
			return noAddress(), nil
		}

		if d.OnFound != nil {
			d.OnFound(found.String())
		}

		return pulumi.StringPtr(found.String()).ToStringPtrOutput(), nil
	}).(pulumi.StringPtrOutput)
}

// linksOf puts together what the provider keeps in lists of the same order.
func linksOf(names, macs []string, addresses ...[][]string) []proxmoxapi.Link {
	var links []proxmoxapi.Link

	for i, name := range names {
		link := proxmoxapi.Link{Name: name}
		if i < len(macs) {
			link.MAC = macs[i]
		}

		for _, family := range addresses {
			if i >= len(family) {
				continue
			}

			for _, text := range family[i] {
				if a, err := netip.ParseAddr(text); err == nil {
					link.Addresses = append(link.Addresses, a)
				}
			}
		}

		links = append(links, link)
	}

	return links
}

// choose takes the address by the node's own MAC address and the network. It is invalid when there is none.
func (d *Discovery) choose(n plan.Node, links []proxmoxapi.Link) (netip.Addr, error) {
	switch found := proxmoxapi.AddressesOf(n.MAC, links, d.Network, d.Except); len(found) {
	case 0:
		return netip.Addr{}, nil
	case 1:
		return found[0], nil
	default:
		return netip.Addr{}, fmt.Errorf("%s reports several addresses inside network.cidr %s for %s: %v; narrow "+
			"network.cidr, or set the addresses with another network.addressing", n.Name, d.Network, n.MAC, found)
	}
}

var (
	// errNoVM says that there is no VM with the node's VMID.
	errNoVM = errors.New("does not exist on Proxmox VE")
	// errStopped says that the VM is off, and will not be started: an interrupted destroy has stopped it.
	errStopped = errors.New("is off")
)

// ask asks the agent itself, for what the provider has seen may be old. An agent that has said nothing to the provider
// all the time is asked once. A VM that is missing twice is not waited for: nothing creates it any more.
func (d *Discovery) ask(ctx context.Context, n plan.Node, answering bool, progress func(string)) (netip.Addr, error) {
	noAddress := fmt.Errorf("%s (VMID %d, %s) reports no address inside network.cidr %s. The usual causes: the guest "+
		"agent is not in the image that the node booted (extension %s); DHCP gave it no address (bridge, VLAN, "+
		"DHCP server); or the address lies in another network. lifecycle.agentTimeout (%s) bounds the wait",
		n.Name, n.VMID, n.MAC, d.Network, plan.GuestAgent, d.Timeout)

	if d.Proxmox == nil {
		return netip.Addr{}, noAddress
	}

	missing := false

	for deadline := time.Now().Add(d.Timeout); ; {
		found, err := d.once(ctx, n)

		switch over := !answering || time.Now().After(deadline); {
		case errors.Is(err, errNoVM) && (missing || over):
			return netip.Addr{}, fmt.Errorf("%s: VM %d %w, but it is in the state: it was deleted by other means, or the "+
				"answer to its deletion was lost. Run the same command again with --refresh", n.Name, n.VMID, err)
		case errors.Is(err, errNoVM):
			missing = true
		case errors.Is(err, errStopped):
			return netip.Addr{}, nil
		case err != nil || found.IsValid():
			return found, err
		case over:
			return netip.Addr{}, noAddress
		default:
			missing = false
		}

		progress("waiting for the guest agent to report an address inside " + d.Network.String())

		select {
		case <-ctx.Done():
			return netip.Addr{}, ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}

// retryInterval is how long an agent is left alone.
const retryInterval = 2 * time.Second

func (d *Discovery) once(ctx context.Context, n plan.Node) (netip.Addr, error) {
	machine, there, err := d.Proxmox.Find(ctx, n.VMID)
	if err != nil {
		return netip.Addr{}, err
	}

	if !there {
		return netip.Addr{}, errNoVM
	}

	if d.Teardown && machine.Stopped {
		return netip.Addr{}, errStopped
	}

	links, err := d.Proxmox.Links(ctx, machine)
	if err != nil {
		// It does not answer yet.
		return netip.Addr{}, nil //nolint:nilerr // that is what is asked
	}

	return d.choose(n, links)
}

// Locate enters the addresses of nodes that run and are not known yet. One that says nothing stays unknown.
func (d *Discovery) Locate(ctx context.Context, nodes []plan.Node, known *AddressBook) {
	for _, n := range nodes {
		if d == nil || known.Get(n.Name) != "" {
			continue
		}

		if found, err := d.once(ctx, n); err == nil && found.IsValid() {
			known.Set(n.Name, found.String())
		}
	}
}

// AddressOf a machine is configured, or found, or not known.
func AddressOf(ctx *pulumi.Context, n plan.Node, d *Discovery, machineVM *vm.VirtualMachine) pulumi.StringPtrOutput {
	switch {
	case n.Address.IsValid():
		return pulumi.StringPtr(n.Address.String()).ToStringPtrOutput()
	case d != nil:
		return d.find(ctx, n, machineVM)
	default:
		return noAddress()
	}
}

func noAddress() pulumi.StringPtrOutput {
	return pulumi.String("").ToStringOutput().ApplyT(func(string) *string { return nil }).(pulumi.StringPtrOutput)
}

// AddressBook holds the addresses of nodes as they become known, for hooks that are about several of them.
type AddressBook struct {
	mu     sync.Mutex
	byName map[string]string
}

// Set enters the address of a node.
func (b *AddressBook) Set(name, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.byName == nil {
		b.byName = map[string]string{}
	}

	b.byName[name] = address
}

// Get returns the address of a node; "" while it is not known.
func (b *AddressBook) Get(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.byName[name]
}
