package talos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const noCNI = "cluster: {network: {cni: {name: none}}}"

// inline is a patch with one inline manifest.
func inline(name, text string) string {
	return "cluster:\n  inlineManifests:\n    - name: " + name + "\n      contents: |\n        " +
		strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n        ") + "\n"
}

// ciliumJob installs Cilium as Talos documents it: a sidecar installs, the job upgrades.
func ciliumJob(name, version, capabilities string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: cilium-install, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cilium-install}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: cilium-install, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, namespace: kube-system}
data:
  values.yaml: |
    kubeProxyReplacement: true
    operator: {replicas: 1}
    securityContext: {capabilities: {ciliumAgent: [%[3]s]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s, namespace: kube-system}
spec:
  template:
    spec:
      hostNetwork: true
      restartPolicy: OnFailure
      serviceAccountName: cilium-install
      nodeSelector: {node-role.kubernetes.io/control-plane: ""}
      tolerations: [{operator: Exists}]
      initContainers:
        - name: install
          image: quay.io/cilium/cilium-cli:v0.19.7
          restartPolicy: Always
          command: [cilium, install, --version, %[2]s, --values, /values/values.yaml]
          env: [{name: KUBERNETES_SERVICE_HOST, value: localhost}, {name: KUBERNETES_SERVICE_PORT, value: "7445"}]
          volumeMounts: [{name: values, mountPath: /values}]
      containers:
        - name: upgrade
          image: quay.io/cilium/cilium-cli:v0.19.7
          command: [cilium, upgrade, --version, %[2]s, --values, /values/values.yaml, --reset-values]
          env: [{name: KUBERNETES_SERVICE_HOST, value: localhost}, {name: KUBERNETES_SERVICE_PORT, value: "7445"}]
          volumeMounts: [{name: values, mountPath: /values}]
      volumes: [{name: values, configMap: {name: %[1]s}}]
`, name, version, capabilities)
}

// agents are the images of the running Cilium agents, one for each node.
func agents(ctx context.Context, api kubernetes.Interface) ([]string, error) {
	list, err := api.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=cilium"})
	if err != nil {
		return nil, err
	}

	var images []string

	for _, p := range list.Items {
		if p.Status.ContainerStatuses[0].Ready {
			images = append(images, p.Spec.Containers[0].Image)
		}
	}

	return images, nil
}

// Without a pod network no node becomes Ready; the job brings one, and another job brings another version.
func TestCiliumByJob(t *testing.T) {
	r := newHarness(t)
	cp, worker := r.machine(11, template()).on(), r.machine(21, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", noCNI))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1", noCNI))
	c.bootstrap(cp)

	api := c.kubernetes(cp)
	r.until("both nodes are registered", func(ctx context.Context) error {
		list, err := api.CoreV1().Nodes().List(ctx, listOptions{})
		if err == nil && len(list.Items) < 2 {
			err = fmt.Errorf("%d nodes", len(list.Items))
		}

		return err
	})
	time.Sleep(600 * time.Millisecond) // longer than the runtime takes to look for a plugin
	require.False(t, cp.status().NodeReady)
	require.Contains(t, strings.Join(worker.status().Unmet, ""), `node "worker-1" is not ready`)

	change := func(text string) {
		t.Helper()

		_, err := c.client(cp).ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: c.config(configmachine.TypeControlPlane, "cp-1", noCNI, inline("cilium", text)),
			Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})
		require.NoError(t, err)
	}
	running := func(version string) {
		t.Helper()
		r.until("the agents are "+version, func(ctx context.Context) error {
			images, err := agents(ctx, api)
			if err == nil && fmt.Sprint(images) != fmt.Sprintf("[quay.io/cilium/cilium:v%[1]s quay.io/cilium/cilium:v%[1]s]",
				version) {
				err = fmt.Errorf("%v", images)
			}

			return err
		})
	}

	change(ciliumJob("cilium-1", "1.18.4", "NET_ADMIN"))
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "worker-1")
	running("1.18.4")

	job, err := api.BatchV1().Jobs(metav1.NamespaceSystem).Get(t.Context(), "cilium-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(1), job.Status.Succeeded)

	operator, err := api.AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "cilium-operator",
		metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(1), operator.Status.ReadyReplicas)

	// what is there is left alone, whatever its manifest says now
	change(ciliumJob("cilium-1", "1.18.5", "NET_ADMIN"))
	change(ciliumJob("cilium-2", "1.18.6", "NET_ADMIN"))
	running("1.18.6")

	status, err := safe.StateGetByID[*k8s.ManifestStatus](t.Context(), c.client(cp).COSI, k8s.ManifestStatusID)
	require.NoError(t, err)
	require.Equal(t, []string{
		"00-kubelet-bootstrapping-token", "01-csr-approver-role-binding", "01-csr-node-bootstrap",
		"01-csr-renewal-role-binding", "10-kube-proxy", "11-core-dns", "11-core-dns-svc",
		"99-cilium",
	}, status.TypedSpec().ManifestsApplied)

	listed, err := safe.StateGetByID[*k8s.Manifest](t.Context(), c.client(cp).COSI, "99-cilium")
	require.NoError(t, err)
	require.Len(t, listed.TypedSpec().Items, 4)
}

// With the capabilities that the chart has by default, the agents do not start on Talos.
func TestCiliumThatLoadsModules(t *testing.T) {
	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", noCNI,
		inline("cilium", ciliumJob("cilium-1", "1.18.4", "NET_ADMIN, SYS_MODULE"))))
	c.bootstrap(cp)

	api := c.kubernetes(cp)
	r.until("the agent fails", func(ctx context.Context) error {
		list, err := api.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=cilium"})
		if err != nil {
			return err
		}

		if len(list.Items) == 0 {
			return fmt.Errorf("there is none")
		}

		if w := list.Items[0].Status.ContainerStatuses[0].State.Waiting; w == nil ||
			!strings.Contains(w.Message, "operation not permitted") {
			return fmt.Errorf("%v", list.Items[0].Status)
		}

		return nil
	})
	time.Sleep(600 * time.Millisecond)
	require.False(t, cp.status().NodeReady)
}

// A manifest with a field that its type does not have is left out; the others are applied.
func TestBrokenManifest(t *testing.T) {
	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())

	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\n"

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1",
		inline("broken", fmt.Sprintf(settings, "broken")+"date: {a: b}\n"), inline("whole", fmt.Sprintf(settings, "whole"))))
	c.bootstrap(cp)

	api := c.kubernetes(cp)
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1")

	found, err := api.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, found.Items, 1)
	require.Equal(t, "whole", found.Items[0].Name)
	require.Contains(t, r.said(),
		`inline manifest broken: ConfigMap map[name:broken namespace:default]: strict decoding error: unknown field "date"`)
}

// Talos 1.13 keeps an inventory of what it has installed: what was deleted comes back once it is not in that any more.
func TestInventory(t *testing.T) {
	const inventory = "talos-bootstrap-manifests-inventory"

	r := newHarness(t, withAgent, released(t))
	c, cp := one(r)
	maps := c.kubernetes(cp).CoreV1().ConfigMaps

	change := func(names ...string) {
		t.Helper()

		var patches []string
		for _, name := range names {
			patches = append(patches, inline(name,
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", namespace: default}\n"))
		}

		_, err := c.client(cp).ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: c.config(configmachine.TypeControlPlane, "cp-1", patches...), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})
		require.NoError(t, err)
	}
	installed := func(names ...string) {
		t.Helper()
		r.until("installed: "+strings.Join(names, ", "), func(ctx context.Context) error {
			list, err := maps(metav1.NamespaceDefault).List(ctx, listOptions{LabelSelector: "!x"})
			if err != nil {
				return err
			}

			var found []string

			for _, item := range list.Items {
				if item.Name != "kube-root-ca.crt" {
					found = append(found, item.Name)
				}
			}

			if strings.Join(found, ", ") != strings.Join(names, ", ") {
				return fmt.Errorf("%v", found)
			}

			return nil
		})
	}
	// The inventory is written after the objects.
	recorded := func(ids ...string) {
		t.Helper()
		r.until("in the inventory: "+strings.Join(ids, ", "), func(ctx context.Context) error {
			stored, err := maps(metav1.NamespaceSystem).Get(ctx, inventory, metav1.GetOptions{})
			if err != nil {
				return err
			}

			for _, id := range ids {
				if _, there := stored.Data[id]; !there {
					return fmt.Errorf("%s is not in %v", id, stored.Data)
				}
			}

			return nil
		})
	}
	remove := func(name string) {
		t.Helper()
		require.NoError(t, maps(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}

	change("a")
	installed("a")
	remove("a")
	change("a", "b")
	installed("a", "b")

	before := cp.bootID(c)
	require.NoError(t, c.upgrade(cp, "factory.talos.dev/metal-installer/"+schematicID+":v1.13.9"))
	cp.rebooted(c, before)
	cp.ready()
	recorded("default_a__ConfigMap")

	remove("a")
	change("a", "b", "c")
	installed("b", "c")

	recorded("default_a__ConfigMap", "default_b__ConfigMap", "default_c__ConfigMap",
		"kube-system_kube-proxy_apps_DaemonSet",
		"_system-bootstrap-node-renewal_rbac.authorization.k8s.io_ClusterRoleBinding")

	made, err := maps(metav1.NamespaceDefault).Get(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, inventory, made.Annotations["config.k8s.io/owning-inventory"])

	_, err = maps(metav1.NamespaceSystem).Patch(t.Context(), inventory, types.JSONPatchType,
		[]byte(`[{"op": "remove", "path": "/data/default_a__ConfigMap"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	change("a", "b", "c", "d")
	installed("a", "b", "c", "d")
}

// The Cilium CLI takes its flags in several spellings, and files from where it works; what the lab does nothing about is
// noted.
func TestCiliumFlags(t *testing.T) {
	job := strings.NewReplacer(
		"command: [cilium, install, --version, 1.18.4, --values, /values/values.yaml]",
		"command: [cilium, install, --version=1.18.4, -f, /values/values.yaml, --set, "+
			"'operator.replicas=3,debug.enabled=true']",
		"command: [cilium, upgrade, --version, 1.18.4, --values, /values/values.yaml, --reset-values]",
		"command: [cilium]\n          args: [upgrade, --version, 1.18.4, --values=/values/values.yaml, "+
			"'--set=operator.replicas=3', --wait]",
	).Replace(ciliumJob("cilium", "1.18.4", "CHOWN"))
	job = strings.NewReplacer(
		"mountPath: /values", "mountPath: /root/app/values.yaml, subPath: values.yaml", "/values/values.yaml", "values.yaml",
	).Replace(job)

	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", noCNI, inline("cilium", job)))
	c.bootstrap(cp)

	api := c.kubernetes(cp)
	r.until("the operator is installed", func(ctx context.Context) error {
		d, err := api.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "cilium-operator", metav1.GetOptions{})
		if err == nil && *d.Spec.Replicas != 3 {
			err = fmt.Errorf("%d replicas", *d.Spec.Replicas)
		}

		return err
	})
	r.until("the flag is noted", func(context.Context) error {
		if !slices.Contains(r.journal.Ignored(), "the flag --wait of the Cilium CLI") {
			return fmt.Errorf("%q", r.journal.Ignored())
		}

		return nil
	})
}

// Manifests are fetched from where the configuration says, with the headers that it names, and again until they come.
func TestExtraManifests(t *testing.T) {
	var refused atomic.Bool

	refused.Store(true)

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused.Load() || r.Header.Get("Authorization") != "Bearer t" {
			w.WriteHeader(http.StatusForbidden)

			return
		}

		_, _ = w.Write([]byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: fetched}\n"))
	}))
	t.Cleanup(server.Close)

	r := newHarness(t)
	cp := r.machine(11, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1", "cluster: {extraManifests: ["+server.URL+
		"/a.yaml, 'https://example.org/b.yaml'], extraManifestHeaders: {Authorization: Bearer t}}"))
	c.bootstrap(cp)

	api := c.kubernetes(cp)

	for _, said := range []string{
		`error downloading "` + server.URL + `/a.yaml": bad response code: 403`,
		`error downloading "https://example.org/b.yaml": `,
	} {
		r.until("the node says that it failed", func(context.Context) error {
			if !strings.Contains(strings.ReplaceAll(r.said(), `\"`, `"`), said) {
				return errors.New("it does not: " + said)
			}

			return nil
		})
	}

	refused.Store(false)
	r.until("the manifest is applied", func(ctx context.Context) error {
		_, err := api.CoreV1().Namespaces().Get(ctx, "fetched", metav1.GetOptions{})

		return err
	})
}

// TestManifestsConfig: a control plane says what its own manifests are made of, which Talos' health checks ask for.
func TestManifestsConfig(t *testing.T) {
	r := newHarness(t)
	c, cp := one(r)

	config := func(flannel bool) *k8s.BootstrapManifestsConfigSpec {
		t.Helper()

		var spec *k8s.BootstrapManifestsConfigSpec

		r.until("the configuration of manifests", func(ctx context.Context) error {
			found, err := safe.ReaderGetByID[*k8s.BootstrapManifestsConfig](ctx, c.client(cp).COSI, k8s.BootstrapManifestsConfigID)
			if err == nil && found.TypedSpec().FlannelEnabled != flannel {
				err = errors.New("not yet")
			}

			if err == nil {
				spec = found.TypedSpec()
			}

			return err
		})

		return spec
	}

	spec := config(true)
	require.Equal(t, []string{"10.244.0.0/16"}, spec.PodCIDRs)
	require.Equal(t, "10.96.0.10", spec.DNSServiceIP)
	require.Equal(t, "https://127.0.0.1:7445", spec.Server)
	require.True(t, spec.ProxyEnabled)
	require.Contains(t, spec.ProxyImage, "/kube-proxy:")
	require.True(t, spec.CoreDNSEnabled)

	c.live(cp, configmachine.TypeControlPlane, "cp-1", noCNI, "cluster: {proxy: {disabled: true}}")

	spec = config(false)
	require.False(t, spec.ProxyEnabled)
	require.Empty(t, spec.FlannelImage)
	require.Empty(t, spec.CNIName, "Talos 1.12 has no name of it")
}
