package changes

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
)

// upgradeKubernetes brings Kubernetes to another version: before the kubelet of the first control plane, each component
// of the control plane on all of them, one node after the other. What has the version already is left alone. Nothing
// else of a node's configuration is changed.
func (r *Changes) upgradeKubernetes(ctx context.Context, c nodeChange) error {
	if c.node.Role == spec.RoleControlPlane {
		if err := r.upgradeControlPlanes(ctx, c); err != nil {
			return err
		}
	}

	return r.upgradeKubelet(ctx, c)
}

func (r *Changes) upgradeControlPlanes(ctx context.Context, c nodeChange) error {
	controlPlanes := r.ControlPlanes()

	for _, t := range controlPlanes {
		for _, pod := range staticPods {
			if err := talosapi.PullImage(ctx, t, c.credentials, common.ContainerdNamespace_NS_CRI, pod.imageIn(c.wanted),
				r.Plan.UpgradeTimeout); err != nil {
				return err
			}
		}
	}

	for _, pod := range staticPods {
		for _, t := range controlPlanes {
			if err := r.upgradeStaticPod(ctx, c, t, pod); err != nil {
				return err
			}
		}
	}

	return r.syncManifests(ctx, c, controlPlanes)
}

// upgradeStaticPod changes one of them on one node, and waits until it is back.
func (r *Changes) upgradeStaticPod(ctx context.Context, c nodeChange, t talosapi.Target, pod staticPod) error {
	image := pod.imageIn(c.wanted)

	changed, err := r.patchRunning(ctx, c, t, pod.patch(image), func(now talosconfig.Provider) bool {
		return pod.imageIn(now) == image
	})
	if err != nil {
		return err
	}

	if changed {
		r.Progress(fmt.Sprintf("%s of %s becomes %s", pod.name, t.Name, image))
	}

	// It is asked of another node, where there is one: its own API server may be what restarts.
	kube, err := r.waitKubernetes(ctx, nodeChange{
		Target: t, node: plan.Node{Name: t.Name, Role: spec.RoleControlPlane}, credentials: c.credentials,
	})
	if err != nil {
		return err
	}

	return kube.WaitStaticPod(ctx, pod.name, t.Name, image, r.Plan.UpgradeTimeout, r.Progress)
}

func (r *Changes) upgradeKubelet(ctx context.Context, c nodeChange) error {
	image, version := c.wanted.K8sKubeletConfig().Image(), talosimage.System(c.wanted).Kubernetes

	if err := talosapi.PullImage(ctx, c.Target, c.credentials, common.ContainerdNamespace_NS_SYSTEM, image,
		r.Plan.UpgradeTimeout); err != nil {
		return err
	}

	changed, err := r.patchRunning(ctx, c, c.Target, kubeletPatch(image), func(now talosconfig.Provider) bool {
		return now.K8sKubeletConfig().Image() == image
	})
	if err != nil {
		return err
	}

	if changed {
		r.Progress(fmt.Sprintf("kubelet of %s becomes %s", c.Name, version))
	}

	kube, err := r.waitKubernetes(ctx, c)
	if err != nil {
		return err
	}

	return kube.WaitKubelet(ctx, c.Name, version, r.Plan.UpgradeTimeout, r.Progress)
}
