package changes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
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

// staticPod is a part of the control plane that runs as a static pod.
type staticPod struct {
	name    string // of its pod
	key     string // in the machine configuration, below cluster
	imageIn func(talosconfig.Provider) string
}

// patch states its image.
func (c staticPod) patch(image string) string {
	return fmt.Sprintf("cluster: { %s: { image: %q } }", c.key, image)
}

func proxyPatch(image string) string { return fmt.Sprintf("cluster: { proxy: { image: %q } }", image) }

func kubeletPatch(image string) string {
	return fmt.Sprintf("machine: { kubelet: { image: %q } }", image)
}

// staticPods in the order in which they change: what asks the API servers is never newer than any of them.
var staticPods = []staticPod{
	{"kube-apiserver", "apiServer", func(c talosconfig.Provider) string { return c.K8sAPIServerConfig().Image() }},
	{
		"kube-controller-manager", "controllerManager",
		func(c talosconfig.Provider) string { return c.K8sControllerManagerConfig().Image() },
	},
	{"kube-scheduler", "scheduler", func(c talosconfig.Provider) string { return c.K8sSchedulerConfig().Image() }},
}

// withRunningKubernetes is the configuration that is wanted, with the versions of Kubernetes that the node runs: a
// reboot into the others would have it run them before all API servers do.
func withRunningKubernetes(c nodeChange, running talosconfig.Provider) (talosconfig.Provider, error) {
	patches := []string{kubeletPatch(running.K8sKubeletConfig().Image())}

	if c.node.Role == spec.RoleControlPlane {
		for _, pod := range staticPods {
			patches = append(patches, pod.patch(pod.imageIn(running)))
		}

		if proxy := running.K8sProxyConfig(); proxy.Enabled() {
			patches = append(patches, proxyPatch(proxy.Image()))
		}
	}

	text, err := c.wanted.Bytes()
	if err != nil {
		return nil, err
	}

	keeping, err := machineconfig.Applied(string(text), patches)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}

	return keeping, nil
}

// patchRunning changes the configuration that a node runs with, unless it is so already. It asks and applies until the
// node answers: to apply what it has taken already changes nothing.
func (r *Changes) patchRunning(
	ctx context.Context, c nodeChange, t talosapi.Target, patch string, isDone func(talosconfig.Provider) bool,
) (changed bool, err error) {
	err = wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		now, err := talosapi.Ask(ctx, t, c.credentials)
		if err != nil {
			return notAnswering(t, err)
		}

		if isDone(now.Configuration) {
			return nil
		}

		patched, err := patchedBytes(now.Configuration, patch)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}

		changed = true

		switch err := talosapi.ApplyLive(ctx, t, c.credentials, patched); {
		case err == nil, errors.As(err, new(talosapi.RejectedError)):
			return err
		default:
			return wait.For("%v", err)
		}
	})

	return changed, err
}

func patchedBytes(configuration talosconfig.Provider, patch string) ([]byte, error) {
	text, err := configuration.Bytes()
	if err != nil {
		return nil, err
	}

	patched, err := machineconfig.Applied(string(text), []string{patch})
	if err != nil {
		return nil, err
	}

	return patched.Bytes()
}

// syncManifests brings up what Talos installs into Kubernetes, once: kube-proxy, whose version is in the configuration
// of control planes, and what comes with the version of Talos.
func (r *Changes) syncManifests(ctx context.Context, c nodeChange, controlPlanes []talosapi.Target) error {
	if r.manifestsSynced {
		return nil
	}

	proxy := c.wanted.K8sProxyConfig()

	for _, t := range controlPlanes {
		if !proxy.Enabled() {
			break
		}

		if _, err := r.patchRunning(ctx, c, t, proxyPatch(proxy.Image()), func(now talosconfig.Provider) bool {
			return now.K8sProxyConfig().Image() == proxy.Image()
		}); err != nil {
			return err
		}
	}

	var objects []*unstructured.Unstructured

	if err := wait.Until(ctx, r.Plan.ReadyTimeout, r.Progress, func(ctx context.Context) (err error) {
		objects, err = talosapi.Manifests(ctx, c.Target, c.credentials)

		switch {
		case err != nil:
			return wait.For("the manifests of %s (%v)", c.Name, err)
		case proxy.Enabled() && !slices.ContainsFunc(objects,
			func(o *unstructured.Unstructured) bool { return runsImage(o, proxy.Image()) }):
			return wait.For("%s to render %s", c.Name, proxy.Image())
		default:
			return nil
		}
	}); err != nil {
		return err
	}

	kube, err := r.waitKubernetes(ctx, c)
	if err != nil {
		return err
	}

	inventory, err := r.keepsInventory(ctx, controlPlanes, c.credentials)
	if err != nil {
		return err
	}

	if err := kube.Sync(ctx, objects, inventory, r.Plan.ReadyTimeout, r.Progress); err != nil {
		return err
	}

	r.manifestsSynced = true

	return nil
}

// keepsInventory says whether all control planes keep an inventory of what they install, as Talos does from 1.13 on.
func (r *Changes) keepsInventory(
	ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials,
) (bool, error) {
	for _, t := range controlPlanes {
		now, err := r.askWithRetry(ctx, t, c)
		if err != nil {
			return false, err
		}

		version, err := talosconfig.ParseContractFromVersion(now.Talos)
		if err != nil || !version.Greater(talosconfig.TalosVersion1_12) {
			return false, err
		}
	}

	return true, nil
}

// runsImage says whether the pods of an object run an image.
func runsImage(object *unstructured.Unstructured, image string) bool {
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return false
	}

	return slices.ContainsFunc(containers, func(c any) bool {
		fields, ok := c.(map[string]any)

		return ok && fields["image"] == image
	})
}

// warnOfRemovedFeatures says what a node, and once in a run the cluster, has in use that is gone in the version of
// Kubernetes to go to. It stops nothing: what is listed may not be all, and what uses it may not matter.
func (r *Changes) warnOfRemovedFeatures(ctx context.Context, c nodeChange, now talosapi.System) {
	from, to := talosimage.System(now.Configuration).Kubernetes, talosimage.System(c.wanted).Kubernetes

	found, err := talosapi.Removed(ctx, c.Target, c.credentials, c.node.Role == spec.RoleControlPlane, from, to)
	r.warnOf(c.Name, found, err)

	r.checkedDeprecations.Do(func() {
		kube, err := cluster.Kubernetes(ctx, r.peersOf(c), c.credentials)
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
			defer cancel()

			found, err = kube.Removed(ctx, from, to)
		}

		r.warnOf("the cluster", found, err)
	})
}

// warnOf shows what was found, or why nothing can be.
func (r *Changes) warnOf(subject string, found []string, err error) {
	if err != nil {
		found = []string{fmt.Sprintf("could not check whether %s uses flags or APIs of Kubernetes that are removed "+
			"in the next version: %v",
			subject, wait.Reason(err))}
	}

	for _, text := range found {
		r.Warn(text)
	}
}
