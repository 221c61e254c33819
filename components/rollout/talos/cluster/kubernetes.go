package cluster

import (
	"context"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

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
