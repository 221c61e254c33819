package talos

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/lab/realkube"
)

// deniedKubeletArgs are those that Talos does not let the configuration change (Talos:
// controllers/k8s/kubelet_spec.go).
var deniedKubeletArgs = []string{
	"bootstrap-kubeconfig", "kubeconfig", "container-runtime", "container-runtime-endpoint", "config", "cert-dir",
}

// renderedKubelet is the kubelet that the configuration describes, or the last one that Talos could render.
func (n *node) renderedKubelet() k8s.KubeletSpecSpec {
	cfg := n.config().K8sKubeletConfig()

	err := n.fw.checkArgs(cfg.ExtraArgs(), deniedKubeletArgs)
	if err != nil {
		n.logOnce(`controller failed {"controller": "k8s.KubeletSpecController", "error": "` + err.Error() + `"}`)
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	if err == nil {
		n.kube.rendered = k8s.KubeletSpecSpec{
			Image: cfg.Image(), Args: flags(cfg.ExtraArgs()), ExtraMounts: cfg.ExtraMounts(),
			Config: maps.Clone(cfg.ExtraConfig()),
		}
	}

	return n.kube.rendered
}

// checkArgs is how Talos refuses arguments when it renders what has them. The configuration itself it takes.
func (f *Firmware) checkArgs(extra map[string][]string, denied []string) error {
	f.mu.Lock()
	denied = slices.Concat(denied, f.denied)
	f.mu.Unlock()

	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if slices.Contains(denied, name) {
			return fmt.Errorf("error merging arguments: extra arg %q is not allowed", name)
		}
	}

	return nil
}

// superviseKubelet keeps the kubelet running that the configuration describes.
func (n *node) superviseKubelet(ctx context.Context) {
	for first := true; ctx.Err() == nil; first = false {
		process := n.renderedKubelet()

		if !first {
			n.setKubelet("")
			n.services.set("kubelet", stateFinished, "Service finished successfully", nil)
			n.shown(ctx)
			n.services.set("kubelet", statePreparing, "Running pre state", nil)
		}

		changed := func() bool { return !reflect.DeepEqual(n.renderedKubelet(), process) }
		round, stop := context.WithCancel(ctx)

		go func() {
			n.awaitChange(round, changed)
			stop()
		}()

		if n.fetch(round, common.ContainerdNamespace_NS_SYSTEM, process.Image, first,
			func(error) { n.leaveKubernetes() }) && !n.has(KubeletDies) {
			if err := n.checkKubelet(round, process); err != nil {
				n.sys.log("kubelet: %v", err)
				n.killKubelet()
			} else {
				n.setKubelet(process.Image)
				n.services.set("kubelet", stateRunning, "Started task kubelet", n.kubeletHealth)
			}

			<-round.Done()
		}

		stop()
	}
}

// checkKubelet is why a kubelet ends as soon as it is started. Its flags are read by a released one; without that, any
// are taken.
func (n *node) checkKubelet(ctx context.Context, process k8s.KubeletSpecSpec) error {
	if err := kube.CheckNodeLabels(slices.Collect(maps.Keys(n.registerLabels()))); err != nil || len(process.Args) == 0 {
		return err
	}

	if n.fw.opts.Upstream == nil {
		n.fw.opts.Journal.Ignore("flags of the kubelet")

		return nil
	}

	return realkube.CheckKubelet(ctx, n.fw.opts.Upstream, imageTag(process.Image), process.Args)
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
	n.kube.starts++
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
