package cluster

import (
	"context"
	"slices"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout"
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

// Kubernetes speaks with the first of the control planes whose API answers.
func Kubernetes(ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials) (*kubeapi.Client, error) {
	var all []rollout.Unreachable

	for _, t := range controlPlanes {
		kube, err := KubernetesOf(ctx, t, c)
		if err == nil {
			return kube, nil
		}

		all = append(all, rollout.Unreachable{Name: t.Name, Why: wait.Reason(err)})
	}

	return nil, rollout.NoneReachable(all)
}

// RetryingKubernetes is Kubernetes for work that takes time, in which other control planes may be changed.
func (c *Cluster) RetryingKubernetes(
	ctx context.Context, controlPlanes []talosapi.Target, credentials talosapi.Credentials,
) (*kubeapi.Client, error) {
	kube, err := Kubernetes(ctx, controlPlanes, credentials)
	if err != nil {
		return nil, err
	}

	var addresses []string
	for _, t := range controlPlanes {
		addresses = append(addresses, t.Address)
	}

	return kube.WithRetry(c.Plan.SettleTimeout, c.Progress, addresses...)
}

// KubernetesOf speaks with the API server of one control plane.
func KubernetesOf(ctx context.Context, t talosapi.Target, c talosapi.Credentials) (*kubeapi.Client, error) {
	raw, err := talosapi.Kubeconfig(ctx, t, c)
	if err != nil {
		return nil, err
	}

	kube, err := kubeapi.New(raw, t.Address)
	if err != nil {
		return nil, err
	}

	_, err = kube.Nodes(ctx)

	return kube, err
}
