package talos

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"
)

// The components of Kubernetes that run as static pods.
const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// component is one of them as it is on a control plane.
type component struct {
	image   string
	command []string
	config  string // the version of the resource that it was made from
	running bool
	problem string // why it is not running
}

// componentSpec is what a component is to be; its text is there to compare.
type componentSpec struct {
	image    string
	disabled bool
	text     string
	denied   string // why Talos cannot render it; empty: it can
}

// deniedArgs are the arguments of a component that Talos does not let the configuration change (Talos:
// controllers/k8s/control_plane_static_pod.go; from Talos 1.14 on control_plane_final.go).
func (n *node) deniedArgs(name string) []string {
	switch name {
	case apiServer:
		denied := []string{
			"etcd-servers", "client-ca-file", "requestheader-client-ca-file", "proxy-client-cert-file", "proxy-client-key-file",
			"encryption-provider-config", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "kubelet-client-certificate",
			"kubelet-client-key", "service-account-key-file", "service-account-signing-key-file", "tls-cert-file",
			"tls-private-key-file", "authorization-config",
		}

		if n.atLeast(14) {
			denied = append(denied, "tls-min-version")
		}

		return denied
	case controllerManager:
		return []string{
			"cluster-signing-cert-file", "cluster-signing-key-file", "authentication-kubeconfig", "authorization-kubeconfig",
			"root-ca-file", "service-account-private-key-file",
		}
	default:
		return []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", "config"}
	}
}

func (n *node) componentSpec(name string) componentSpec {
	c := clusterOf(n.config())

	var spec componentSpec

	switch name {
	case apiServer:
		spec = componentSpec{image: c.APIServer().Image(), text: n.apiServerSpec()}
	case controllerManager:
		spec = componentSpec{
			image: c.ControllerManager().Image(), disabled: !n.config().K8sControllerManagerConfig().Enabled(),
		}
	default:
		spec = componentSpec{image: c.Scheduler().Image(), disabled: !n.config().K8sSchedulerConfig().Enabled()}
	}

	args := n.componentArgs(name)
	spec.text += fmt.Sprint(args)

	if err := n.fw.checkArgs(args, n.deniedArgs(name)); err != nil {
		spec.denied = err.Error()
	}

	return spec
}

// componentArgs are the arguments that the configuration adds to those of a component.
func (n *node) componentArgs(name string) map[string][]string {
	c := clusterOf(n.config())

	switch name {
	case apiServer:
		return c.APIServer().ExtraArgs()
	case controllerManager:
		return c.ControllerManager().ExtraArgs()
	default:
		return c.Scheduler().ExtraArgs()
	}
}

// runComponent keeps a component running while etcd does. Its configuration is rendered, then its pod is replaced, as
// soon as the image is there: meanwhile it is down.
func (n *node) runComponent(ctx context.Context, name string, run func(context.Context)) {
	defer n.setComponent(name, nil)

	for first := true; ctx.Err() == nil; first = false {
		spec := n.componentSpec(name)

		round, stop := context.WithCancel(ctx)
		done := make(chan struct{})

		go func() {
			defer close(done)

			if spec.disabled || spec.denied != "" {
				n.setComponent(name, nil)

				return
			}

			n.startComponent(round, name, spec, first, run)
		}()

		n.awaitRendered(ctx, name, spec)
		stop()
		<-done
	}
}

// awaitRendered waits until Talos renders a component differently. While it cannot, the component goes on as it is.
func (n *node) awaitRendered(ctx context.Context, name string, spec componentSpec) {
	for ctx.Err() == nil {
		n.awaitChange(ctx, func() bool { return n.componentSpec(name) != spec })

		if spec = n.componentSpec(name); spec.denied == "" {
			return
		}

		n.putComponent(name, spec)
		n.logOnce(`controller failed {"controller": "k8s.ControlPlaneStaticPodController", "error": "` + spec.denied + `"}`)
	}
}

// awaitChange waits for a condition that what kicks the node may bring about.
func (n *node) awaitChange(ctx context.Context, changed func() bool) {
	for {
		next := n.kick.next()
		if changed() {
			return
		}

		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// startComponent runs a component until the context ends.
func (n *node) startComponent(ctx context.Context, name string, spec componentSpec, first bool,
	run func(context.Context),
) {
	c := component{
		image: spec.image, config: n.putComponent(name, spec),
		command: append([]string{"/usr/local/bin/" + name}, flags(n.componentArgs(name))...),
	}
	n.setComponent(name, &c)

	failed := func(err error) {
		c.problem = err.Error()
		n.setComponent(name, &c)
	}

	if n.fetch(ctx, common.ContainerdNamespace_NS_CRI, spec.image, first, failed) {
		c.problem = ""
		run(context.WithValue(ctx, componentKey{}, func() {
			c.running = true
			n.setComponent(name, &c)
			n.fw.checkVersions(n)
		}))
	}
}

type componentKey struct{}

// isRunning says on behalf of what a component runs that it answers.
func isRunning(ctx context.Context) {
	if f, ok := ctx.Value(componentKey{}).(func()); ok {
		f()
	}
}

// fetch pulls an image, again and again, until it is there. What a boot begins with takes no time of its own.
func (n *node) fetch(ctx context.Context, namespace common.ContainerdNamespace, image string, first bool,
	failed func(error),
) bool {
	for {
		latency := n.fw.opts.Latencies.Pull
		if first {
			latency = 0
		}

		err := n.pullIn(ctx, namespace, image, latency)
		if err == nil {
			return true
		}

		n.logOnce(err.Error())
		failed(err)

		if !pause(ctx, retry) {
			return false
		}
	}
}

func (n *node) setComponent(name string, c *component) {
	n.mu.Lock()

	if c == nil {
		delete(n.components, name)
	} else {
		n.components[name] = *c
	}

	n.mu.Unlock()
	n.kick.notify()
}

// component returns one as it is now.
func (n *node) component(name string) (component, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.components[name]

	return c, ok
}

// putComponent publishes the configuration of a component, and returns its version.
func (n *node) putComponent(name string, spec componentSpec) string {
	c := clusterOf(n.config())

	var r resource.Resource

	switch name {
	case apiServer:
		api := k8s.NewAPIServerConfig(k8s.APIServerConfigID)
		s := api.TypedSpec()
		s.Image, s.ExtraArgs, s.LocalPort = spec.image, argValues(c.APIServer().ExtraArgs()), c.LocalAPIServerPort()
		s.ControlPlaneEndpoint, s.EtcdServers, s.ServiceCIDRs = c.Endpoint().String(), []string{"https://localhost:2379"},
			prefixTexts(c.ServiceCIDRs())
		s.AdvertisedAddress = n.address().String()
		r = api
	case controllerManager:
		manager := k8s.NewControllerManagerConfig(k8s.ControllerManagerConfigID)
		s := manager.TypedSpec()
		s.Enabled, s.Image, s.ExtraArgs = true, spec.image, argValues(c.ControllerManager().ExtraArgs())
		s.PodCIDRs, s.ServiceCIDRs = prefixTexts(c.PodCIDRs()), prefixTexts(c.ServiceCIDRs())
		r = manager
	default:
		sched := k8s.NewSchedulerConfig(k8s.SchedulerConfigID)
		s := sched.TypedSpec()
		s.Enabled, s.Image, s.ExtraArgs = true, spec.image, argValues(c.Scheduler().ExtraArgs())
		r = sched
	}

	n.put(r)

	return r.Metadata().Version().String()
}

// staticPods are the control plane's own pods.
func (n *node) staticPods() []corev1.Pod {
	pods := []corev1.Pod{}

	for _, name := range []string{apiServer, controllerManager, scheduler} {
		if c, ok := n.component(name); ok {
			pods = append(pods, n.staticPod(name, c))
		}
	}

	return pods
}
