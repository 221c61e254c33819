package talos

import (
	"context"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"

	"talos-proxmox/tests/lab/kube"
)

// superviseKubelet keeps the kubelet running that the configuration names.
func (n *node) superviseKubelet(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		image, labels := n.config().K8sKubeletConfig().Image(), n.registerLabels()

		if !first {
			n.setKubelet("")
			n.services.set("kubelet", stateFinished, "Service finished successfully", nil)
			n.shown(ctx)
			n.services.set("kubelet", statePreparing, "Running pre state", nil)
		}

		changed := func() bool {
			return n.config().K8sKubeletConfig().Image() != image || !maps.Equal(n.registerLabels(), labels)
		}
		round, stop := context.WithCancel(ctx)

		go func() {
			n.awaitChange(round, changed)
			stop()
		}()

		if n.fetch(round, common.ContainerdNamespace_NS_SYSTEM, image, first, func(error) { n.leaveKubernetes() }) &&
			!n.has(KubeletDies) {
			if err := kube.CheckNodeLabels(slices.Collect(maps.Keys(labels))); err != nil {
				n.sys.log("kubelet: %v", err)
				n.killKubelet()
			} else {
				n.setKubelet(image)
				n.services.set("kubelet", stateRunning, "Started task kubelet", n.kubeletHealth)
			}

			<-round.Done()
		}

		stop()
	}
}

// killKubelet ends the kubelet. The cluster hears nothing of the machine any more.
func (n *node) killKubelet() {
	n.services.set("kubelet", "Waiting",
		`Error running Containerd(kubelet), going to restart forever: task "kubelet" failed: exit code 1`, nil)
	n.leaveKubernetes()
}

// setKubelet notes which kubelet runs, if one does.
func (n *node) setKubelet(image string) {
	n.mu.Lock()
	n.kube.kubelet, n.kube.registered = image, false
	n.mu.Unlock()
}

// kubeletImage is the image of the kubelet that runs, or else of the one that will.
func (n *node) kubeletImage() string {
	n.mu.Lock()
	image := n.kube.kubelet
	n.mu.Unlock()

	if image == "" {
		image = n.config().K8sKubeletConfig().Image()
	}

	return image
}
