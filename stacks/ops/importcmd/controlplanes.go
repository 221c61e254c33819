package importcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosapi"
)

// running is what the cluster runs with.
func (c *cluster) running(ctx context.Context, endpoints []string, credentials talosapi.Credentials) (*secrets.Bundle,
	error,
) {
	targets, err := c.controlPlanes(ctx)
	if err != nil {
		return nil, err
	}

	for _, e := range endpoints {
		targets = append(targets, talosapi.Target{Name: "endpoint", Address: e})
	}

	targets = slices.DeleteFunc(targets, func(t talosapi.Target) bool { return t.Address == "" })
	if len(targets) == 0 {
		return nil, errors.New("no address of a control plane is known: name one with --control-plane")
	}

	return c.talos.secrets(ctx, targets, credentials, c.accept)
}

// accept refuses the secrets of another cluster. A talosconfig may lead to one: its selected context is used where it
// has none of the cluster's name. What runs in a VM of the plan is believed, whatever name it has.
func (c *cluster) accept(t talosapi.Target, name string) error {
	own := slices.ContainsFunc(c.plan.ControlPlanes(), func(n plan.Node) bool { return n.Name == t.Name })
	if own || name == c.plan.Cluster {
		return nil
	}

	return fmt.Errorf("%s (%s) is a control plane of cluster %s, and the stack's cluster is %s: its secrets are not "+
		"imported. Give the talosconfig of %[4]s, or the address of its control plane with --control-plane", t.Name,
		t.Address, name, c.plan.Cluster)
}

// founded says whether there is a cluster, or may be one. A run that was cut off early leaves machines that wait to be
// configured: they have no secrets.
func (c *cluster) founded(ctx context.Context, credentials talosapi.Credentials) (bool, error) {
	all, err := c.controlPlanes(ctx)
	if err != nil || len(all) == 0 {
		return false, err
	}

	unreachable := slices.ContainsFunc(all, func(t talosapi.Target) bool { return t.Address == "" })

	return unreachable || c.talos.founded(ctx, all, credentials), nil
}

// controlPlanes are the one that was named, and those of the configuration that have a VM. Where it does not set
// their addresses, the guest agent may know: without that, they have none.
func (c *cluster) controlPlanes(ctx context.Context) ([]talosapi.Target, error) {
	var all []talosapi.Target

	if a := c.options.ControlPlane; a != "" {
		all = append(all, talosapi.Target{Name: "control plane", Address: a})
	}

	for _, n := range c.plan.ControlPlanes() {
		vm, there, err := c.proxmox.Find(ctx, n.VMID)
		if err != nil {
			return nil, err
		}

		if there {
			all = append(all, talosapi.Target{Name: n.Name, Address: c.address(ctx, n, vm)})
		}
	}

	return all, nil
}

func (c *cluster) address(ctx context.Context, n plan.Node, vm proxmoxapi.VM) string {
	if n.Address.IsValid() {
		return n.Address.String()
	}

	links, err := c.proxmox.Links(ctx, vm)
	if found := proxmoxapi.AddressesOf(n.MAC, links, c.plan.Network, c.plan.VIP); err == nil && len(found) == 1 {
		return found[0].String()
	}

	return ""
}
