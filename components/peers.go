package components

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// peersOf are the control planes to ask when something happens to a node: those whose address is known, the node itself last
// where it is one.
func peersOf(p *plan.Plan, addresses *proxmoxvm.AddressBook, t talosapi.Target, role spec.Role) []talosapi.Target {
	all := slices.DeleteFunc(controlPlanes(p, addresses), func(c talosapi.Target) bool { return c.Address == "" || c.Name == t.Name })

	if role == spec.RoleControlPlane {
		all = append(all, t)
	}

	return all
}

// without leaves a node out.
func without(all []talosapi.Target, t talosapi.Target) []talosapi.Target {
	return slices.DeleteFunc(slices.Clone(all), func(c talosapi.Target) bool { return c.Address == t.Address })
}

// silence is why a node does not answer within the bound, nil when it does: a reply may be lost.
func silence(ctx context.Context, t talosapi.Target, c talosapi.Credentials, bound time.Duration, say wait.Say) error {
	return wait.Until(ctx, bound, say, func(ctx context.Context) (string, error) {
		if err := talosapi.Answers(ctx, t, c); err != nil {
			return fmt.Sprintf("%s to answer (%v)", t.Name, err), nil
		}

		return "", nil
	})
}

// kubernetes speaks with the first of the control planes whose API answers.
func kubernetes(ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials) (*kubeapi.Client, error) {
	var all []mute

	for _, t := range controlPlanes {
		kube, err := kubernetesOf(ctx, t, c)
		if err == nil {
			return kube, nil
		}

		all = append(all, mute{t.Name, wait.Reason(err)})
	}

	return nil, unanswered(all)
}

// mute is a control plane whose Kubernetes API does not answer, and why.
type mute struct {
	name string
	why  error
}

func unanswered(all []mute) error {
	var said []string
	for _, s := range all {
		said = append(said, fmt.Sprintf("%s: %v", s.name, s.why))
	}

	return fmt.Errorf("no Kubernetes API answers (%s)", strings.Join(said, "; "))
}

// lasting is Kubernetes for work that takes time, in which other control planes may be changed.
func lasting(
	ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials, p *plan.Plan, say wait.Say,
) (*kubeapi.Client, error) {
	kube, err := kubernetes(ctx, controlPlanes, c)
	if err != nil {
		return nil, err
	}

	return kube.WithRetry(p.SettleTimeout, say, addressesOf(controlPlanes)...)
}

func addressesOf(all []talosapi.Target) []string {
	var addresses []string
	for _, t := range all {
		addresses = append(addresses, t.Address)
	}

	return addresses
}

func kubernetesOf(ctx context.Context, t talosapi.Target, c talosapi.Credentials) (*kubeapi.Client, error) {
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
