package talos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// component is a patch that gives a component another version.
func component(name, version string) string {
	switch name {
	case "kubelet":
		return "machine: {kubelet: {image: 'ghcr.io/siderolabs/kubelet:v" + version + "'}}"
	case "kube-apiserver":
		return "cluster: {apiServer: {image: 'registry.k8s.io/kube-apiserver:v" + version + "'}}"
	case "kube-controller-manager":
		return "cluster: {controllerManager: {image: 'registry.k8s.io/kube-controller-manager:v" + version + "'}}"
	default:
		return "cluster: {scheduler: {image: 'registry.k8s.io/kube-scheduler:v" + version + "'}}"
	}
}

var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// live changes a node's configuration without a reboot.
func (c *cluster) live(v *vm, role configmachine.Type, name string, patches ...string) {
	c.Helper()

	_, err := c.client(v).ApplyConfiguration(c.Context(),
		&machineapi.ApplyConfigurationRequest{Data: c.config(role, name, patches...), Mode: noReboot})
	require.NoError(c, err)
}

// runs waits until the pod of a component runs a version, as the API shows it.
func (c *cluster) runs(v *vm, name, version string) {
	c.Helper()

	api, node := c.kubernetesAt(v, v.addr()), fmt.Sprintf("cp-%d", v.hw.VMID-410)
	v.until(name+" runs v"+version, func(ctx context.Context) error {
		p, err := api.CoreV1().Pods("kube-system").Get(ctx, name+"-"+node, metav1.GetOptions{})
		if err != nil {
			return err
		}

		cfg, err := c.client(v).COSI.Get(ctx, resource.NewMetadata(k8s.ControlPlaneNamespaceName, map[string]resource.Type{
			"kube-apiserver": k8s.APIServerConfigType, "kube-controller-manager": k8s.ControllerManagerConfigType,
			"kube-scheduler": k8s.SchedulerConfigType,
		}[name], name, resource.VersionUndefined))
		if err != nil {
			return err
		}

		ready := slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		if got := p.Spec.Containers[0].Image; !strings.HasSuffix(got, ":v"+version) || !ready ||
			p.Annotations["talos.dev/config-version"] != cfg.Metadata().Version().String() {
			return fmt.Errorf("%s, ready: %t, config version %s of %s", got, ready, p.Annotations["talos.dev/config-version"],
				cfg.Metadata().Version())
		}

		return nil
	})
}

// kubelet waits until a node's kubelet reports a version.
func (c *cluster) kubelet(asked *vm, node, version string) {
	c.Helper()

	api := c.kubernetes(asked)
	c.until("kubelet of "+node, func(ctx context.Context) error {
		n, err := api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && n.Status.NodeInfo.KubeletVersion != "v"+version {
			err = errors.New(n.Status.NodeInfo.KubeletVersion)
		}

		return err
	})
}

// Components are upgraded one by one, as upgrade-k8s does it, and nothing is held against that.
func TestUpgradeKubernetes(t *testing.T) {
	r := newHarness(t)
	worker := r.machine(21, template()).on()
	c, cps := three(r, "", nil)
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))
	worker.ready()

	began := time.Now()

	var patches []string

	for _, name := range components {
		patches = append(patches, component(name, "1.35.0"))

		for i, v := range cps {
			c.live(v, configmachine.TypeControlPlane, fmt.Sprintf("cp-%d", i+1), patches...)
			c.runs(v, name, "1.35.0")
		}
	}

	version, err := c.kubernetes(cps[0]).Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v1.35.0", version.GitVersion)

	// the service goes and comes
	events := make(chan safe.WrappedStateEvent[*v1alpha1.Service])
	require.NoError(t, safe.StateWatch(t.Context(), c.client(worker).COSI, v1alpha1.NewService("kubelet").Metadata(),
		events))
	next := func() state.EventType {
		event := <-events

		return event.Type()
	}
	require.Equal(t, state.Created, next())

	c.live(worker, configmachine.TypeWorker, "worker-1", component("kubelet", "1.35.0"))
	require.Equal(t, state.Destroyed, next())
	require.Equal(t, state.Created, next())
	c.kubelet(cps[0], "worker-1", "1.35.0")

	for i, v := range cps {
		c.live(v, configmachine.TypeControlPlane, fmt.Sprintf("cp-%d", i+1),
			append(patches, component("kubelet", "1.35.0"))...)
		c.kubelet(cps[0], fmt.Sprintf("cp-%d", i+1), "1.35.0")
	}

	require.Empty(t, r.fw.Violations(began))
	require.Empty(t, r.fw.Outages(began))

	// manifests are created, not changed: that is the client's part
	manifest, err := safe.StateGet[*k8s.Manifest](t.Context(), c.client(cps[0]).COSI,
		k8s.NewManifest(k8s.ControlPlaneNamespaceName, "10-kube-proxy").Metadata())
	require.NoError(t, err)
	require.Equal(t, "DaemonSet", manifest.TypedSpec().Items[0].Object["kind"])

	proxy, err := c.kubernetes(cps[0]).AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy",
		metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "registry.k8s.io/kube-proxy:v1.34.2", proxy.Spec.Template.Spec.Containers[0].Image)
}

// violations waits for the first of them.
func (r *harness) violations(since time.Time) []string {
	r.Helper()

	var out []string

	r.until("a rule is broken", func(context.Context) error {
		out = nil
		for _, v := range r.fw.Violations(since) {
			out = append(out, v.Text)
		}

		if len(out) == 0 {
			return errors.New("none is")
		}

		return nil
	})

	return out
}

// Who goes too fast is told afterwards.
func TestVersionSkew(t *testing.T) {
	t.Run("a kubelet before the API servers", func(t *testing.T) {
		r := newHarness(t)
		c, cps := three(r, "", nil)
		began := time.Now()

		c.live(cps[1], configmachine.TypeControlPlane, "cp-2", component("kubelet", "1.35.0"))
		c.kubelet(cps[0], "cp-2", "1.35.0")
		require.Contains(t, r.violations(began), "kubelet v1.35.0 of vm-12 is newer than kube-apiserver v1.34.2 of vm-11")
	})
	t.Run("two minor versions at once", func(t *testing.T) {
		r := newHarness(t)
		cp := r.machine(11, template()).on()
		c := r.cluster(cp.addr())
		old := []string{
			component("kube-controller-manager", "1.33.6"), component("kube-scheduler", "1.33.6"),
			component("kubelet", "1.33.6"),
		}
		c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", append(old, component("kube-apiserver", "1.33.6"))...))
		c.bootstrap(cp)
		cp.ready()
		c.runs(cp, "kube-scheduler", "1.33.6")

		began := time.Now()
		c.live(cp, configmachine.TypeControlPlane, "cp-1", append(old, component("kube-apiserver", "1.35.0"))...)
		c.runs(cp, "kube-apiserver", "1.35.0")
		require.Equal(t, []string{
			"kube-controller-manager v1.33.6 of vm-11 is too old for kube-apiserver v1.35.0 of vm-11",
			"kube-scheduler v1.33.6 of vm-11 is too old for kube-apiserver v1.35.0 of vm-11",
		}, r.violations(began))
	})
	t.Run("the scheduler first, and back", func(t *testing.T) {
		r := newHarness(t)
		c, cp := one(r)
		began := time.Now()

		c.live(cp, configmachine.TypeControlPlane, "cp-1", component("kube-scheduler", "1.35.0"))
		c.runs(cp, "kube-scheduler", "1.35.0")
		require.Equal(t, []string{"kube-scheduler v1.35.0 of vm-11 is newer than kube-apiserver v1.34.2 of vm-11"},
			r.violations(began))

		began = time.Now()
		c.live(cp, configmachine.TypeControlPlane, "cp-1")
		c.runs(cp, "kube-scheduler", "1.34.2")
		require.Equal(t, []string{"kube-scheduler v1.34.2 of vm-11 goes back from v1.35.0"}, r.violations(began))
	})
}

// A component whose image cannot be had is down until it can.
func TestImageThatIsMissing(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	v := cps[1]

	r.fw.Withdraw("kube-apiserver:v1.35.0")
	c.live(v, configmachine.TypeControlPlane, "cp-2", component("kube-apiserver", "1.35.0"))

	status := func(ctx context.Context) (corev1.PodStatus, error) {
		p, err := c.kubernetesAt(cps[0], cps[0].addr()).CoreV1().Pods("kube-system").Get(ctx, "kube-apiserver-cp-2",
			metav1.GetOptions{})
		if err != nil {
			return corev1.PodStatus{}, err
		}

		return p.Status, nil
	}

	r.until("the pod waits", func(ctx context.Context) error {
		st, err := status(ctx)
		if err != nil {
			return err
		}

		// A mirror pod has no status yet when it is made.
		if len(st.ContainerStatuses) == 0 {
			return errors.New("no status")
		}

		if w := st.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "ImagePullBackOff" ||
			!strings.Contains(w.Message, "kube-apiserver:v1.35.0") {
			return fmt.Errorf("%v", st.ContainerStatuses)
		}

		return nil
	})
	require.Nil(t, c.serverCertificate(v.addr()+":6443"))

	r.fw.Publish("kube-apiserver:v1.35.0")
	c.runs(v, "kube-apiserver", "1.35.0")
	v.ready()

	// a kubelet likewise
	r.fw.Withdraw("kubelet:v1.35.0")
	c.live(v, configmachine.TypeControlPlane, "cp-2", component("kube-apiserver", "1.35.0"),
		component("kubelet", "1.35.0"))
	r.until("the kubelet is down", func(context.Context) error {
		if _, state := service(t, c.client(v), "kubelet"); state != "Preparing" {
			return errors.New(state)
		}

		return nil
	})
	r.fw.Publish("kubelet:v1.35.0")
	c.kubelet(cps[0], "cp-2", "1.35.0")
	v.ready()
}

// Talos takes arguments that it does not let be changed, and leaves what has them as it was.
func TestDeniedArguments(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)

	static := func() string {
		pod, err := safe.StateGetByID[*k8s.StaticPod](t.Context(), c.client(cp).COSI, "kube-apiserver")
		require.NoError(t, err)

		return fmt.Sprint(pod.TypedSpec().Pod)
	}
	kubelet := func() []string {
		spec, err := safe.StateGetByID[*k8s.KubeletSpec](t.Context(), c.client(cp).COSI, "kubelet")
		require.NoError(t, err)

		return spec.TypedSpec().Args
	}

	before := static()
	c.live(cp, configmachine.TypeControlPlane, "cp-1", `cluster: {apiServer: {extraArgs: {etcd-servers: "https://a"}}}`,
		`machine: {kubelet: {extraArgs: {cert-dir: /tmp}}}`)
	r.until("the configuration of the API server has it", func(ctx context.Context) error {
		api, err := safe.StateGetByID[*k8s.APIServerConfig](ctx, c.client(cp).COSI, "kube-apiserver")
		if err == nil && len(api.TypedSpec().ExtraArgs) == 0 {
			err = errors.New("it has not")
		}

		return err
	})
	require.Equal(t, before, static(), "its pod is left alone")
	require.Empty(t, kubelet())

	c.live(cp, configmachine.TypeControlPlane, "cp-1", `cluster: {apiServer: {extraArgs: {profiling: "true"}}}`,
		`machine: {kubelet: {extraArgs: {v: "3"}}}`)
	r.until("what is not denied is rendered", func(context.Context) error {
		if pod := static(); !strings.Contains(pod, "--profiling=true") || !slices.Equal(kubelet(), []string{"--v=3"}) {
			return errors.New(pod)
		}

		return nil
	})
	cp.ready()
}
