package changes

import (
	"context"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

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
		now, err := r.askAnswering(ctx, t, c)
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
