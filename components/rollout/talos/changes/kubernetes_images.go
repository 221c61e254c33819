package changes

import (
	"context"
	"errors"
	"fmt"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

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
