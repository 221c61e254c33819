package cluster

import (
	"context"
	"slices"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// ControlPlanes are addressed one by one, never through the cluster's endpoint.
func (c *Cluster) ControlPlanes() []talosapi.Target {
	var targets []talosapi.Target
	for _, n := range c.Plan.ControlPlanes() {
		targets = append(targets, talosapi.Target{Name: n.Name, Address: c.Addresses.Get(n.Name)})
	}

	return targets
}

// Peers are the control planes to ask when something happens to a node: those whose address is known, the node itself
// last where it is one.
func (c *Cluster) Peers(t talosapi.Target, role spec.Role) []talosapi.Target {
	all := slices.DeleteFunc(c.ControlPlanes(), func(p talosapi.Target) bool {
		return p.Address == "" || p.Name == t.Name
	})

	if role == spec.RoleControlPlane {
		all = append(all, t)
	}

	return all
}

// WhyUnreachable is why a node does not answer, nil when it does: a reply may be lost.
func (c *Cluster) WhyUnreachable(ctx context.Context, t talosapi.Target, credentials talosapi.Credentials) error {
	bound := min(c.Plan.SettleTimeout, c.Plan.NodeTimeout)

	return wait.Until(ctx, bound, c.Progress, func(ctx context.Context) error {
		if err := talosapi.Answers(ctx, t, credentials); err != nil {
			return wait.For("%s to answer (%v)", t.Name, err)
		}

		return nil
	})
}

// Without leaves a node out.
func Without(all []talosapi.Target, t talosapi.Target) []talosapi.Target {
	return slices.DeleteFunc(slices.Clone(all), func(c talosapi.Target) bool { return c.Address == t.Address })
}
