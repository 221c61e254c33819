package tests

import (
	"context"
	"crypto/tls"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// tailnet is a cluster that is reached through kube-vip, also from its tailnet, with Cilium instead of kube-proxy.
const tailnet = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster:
    name: home
    versions: { talos: v1.14.1, kubernetes: v1.37.0 }
    endpoint: { mode: kubeVip, address: 192.168.10.10, interface: ens18, names: [api.example.com] }
    schedulableControlPlanes: true
    addons: [metrics-server]
    cni: { name: cilium, version: 1.18.3, kubeProxy: false }
    encryption: nodeID
    registryMirrors: { docker.io: ["https://registry.lan:5000"] }
    logs: { services: [tcp://192.168.10.5:5044], kernel: [udp://192.168.10.5:6050] }
    manifests:
      - apiVersion: v1
        kind: Namespace
        metadata: { name: flux-system }
  talos-proxmox:image: { source: template, schematic: [tailscale], template: { control: talos-v1.14.1-base, worker: talos-v1.14.1-base } }
  talos-proxmox:network: { cidr: 192.168.10.0/24, timeServers: [192.168.10.1] }
  talos-proxmox:tailscale: { loginServer: https://headscale.example.com, pools: [control], advertiseEndpoint: true }
  talos-proxmox:pools:
    control: { role: controlplane, count: 3, addresses: 192.168.10.11-13 }
    worker: { role: worker, count: 1, addresses: 192.168.10.21-49 }
`

// TestTailnet brings a cluster up whose API server is reached through kube-vip, which follows the control planes that
// are there; another version of Cilium reaches the running cluster, past the inventory of Talos 1.14. The tailnet
// reaches the API server by the route that the control planes advertise.
func TestTailnet(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, tailnet))
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait), "which takes Cilium")

	api := kubernetesClient(t, outputs)

	_, err := api.CoreV1().Namespaces().Get(t.Context(), "flux-system", metav1.GetOptions{})
	require.NoError(t, err, "the operator's manifests are applied")

	requirePlatform(t, api)

	assert.Equal(t, "v1.18.3", cilium(t, outputs))
	assert.Empty(t, runs(t, outputs, "kube-proxy-"))
	assert.ElementsMatch(t, []string{"home-control-1", "home-control-2", "home-control-3"}, runs(t, outputs, "kube-vip-"))

	assert.Equal(t, map[string]bool{
		"home-control-1": true, "home-control-2": true, "home-control-3": true, "home-worker-1": false,
	}, onTailnet(t, r, outputs))

	requireNoChange(t, r.Stack)

	fromTailnet, err := clientcmd.RESTConfigFromKubeConfig([]byte(outputs[contract.OutputKubeconfig].Value.(string)))
	require.NoError(t, err)

	fromTailnet.Dial = r.Talos.DialTailnet
	remote, err := kubernetes.NewForConfig(fromTailnet)
	require.NoError(t, err)

	_, err = remote.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "the tailnet has no route to "+r.Plan.VIP.String())

	r.Talos.ApproveRoute(netip.PrefixFrom(r.Plan.VIP, r.Plan.VIP.BitLen()))

	_, err = remote.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	t.Run("another version of Cilium", func(t *testing.T) {
		before := vmids(r)

		set(t, r.Stack, "cluster.cni.version", "1.18.4")
		up(t, r.Stack)
		require.Eventually(t, func() bool { return cilium(t, outputs) == "v1.18.4" }, wait, 50*time.Millisecond)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.Equal(t, before, vmids(r))

		jobs, err := api.BatchV1().Jobs(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, jobs.Items, 3)

		for _, job := range jobs.Items {
			assert.True(t, slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
				return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
			}), job.Name)
		}

		requireNoChange(t, r.Stack)
	})

	t.Run("the address moves", func(t *testing.T) {
		stopHolder(t, r, outputs)

		require.Eventually(t, func() bool {
			_, err := remote.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})

			return err == nil
		}, wait, 50*time.Millisecond)
	})

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

// requirePlatform holds that control planes take pods, and that the job of an addon has run.
func requirePlatform(t *testing.T, api kubernetes.Interface) {
	t.Helper()

	nodes, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	for _, n := range nodes.Items {
		assert.Empty(t, n.Spec.Taints, n.Name)
	}

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		jobs, err := api.BatchV1().Jobs(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.True(c, slices.ContainsFunc(jobs.Items, func(j batchv1.Job) bool {
			return strings.HasPrefix(j.Name, "install-metrics-server-") && j.Status.Succeeded == 1
		}))
	}, wait, 100*time.Millisecond)
}

// TestVirtualIP brings the home cluster up behind Talos' own shared address: its certificate covers what the
// configuration names, and the kubeconfig works on when the control plane that holds the address stops.
func TestVirtualIP(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "atlas"))
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait), "which takes Cilium")

	assert.Equal(t, "v1.16.5", cilium(t, outputs))

	for node, runs := range onTailnet(t, r, outputs) {
		assert.True(t, runs, node)
	}

	// Talos is reached without the shared address, which etcd may take away.
	talosconfig, err := clientconfig.FromString(outputs[contract.OutputTalosconfig].Value.(string))
	require.NoError(t, err)

	named := talosconfig.Contexts[talosconfig.Context]
	assert.Equal(t, []string{addressOf(r, "talos-cp-01"), addressOf(r, "talos-cp-02"), addressOf(r, "talos-cp-03")},
		named.Endpoints)
	assert.Len(t, named.Nodes, len(r.Plan.Nodes()))

	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is read, not trusted

	conn, err := dialer.DialContext(t.Context(), "tcp", endpointOf(t, outputs))
	require.NoError(t, err)

	defer conn.Close()

	served := conn.(*tls.Conn).ConnectionState().PeerCertificates[0] //nolint:forcetypeassert // what this dialer returns
	assert.NoError(t, served.VerifyHostname(r.Plan.VIP.String()))

	for _, n := range r.Plan.ControlPlanes() {
		assert.NoError(t, served.VerifyHostname(n.Address.String()))
	}

	stopHolder(t, r, outputs)
	destroy(t, r.Stack)
}

// endpointOf is where a kubeconfig finds the API server.
func endpointOf(t *testing.T, outputs auto.OutputMap) string {
	t.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(outputs[contract.OutputKubeconfig].Value.(string)))
	require.NoError(t, err)

	return strings.TrimPrefix(config.Host, "https://")
}

// stopHolder stops the control plane that holds the shared address, and waits until the cluster says so through that
// address.
func stopHolder(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) {
	t.Helper()

	shared, err := netip.ParseAddrPort(endpointOf(t, outputs))
	require.NoError(t, err)

	var holders []string

	talos, _ := talosClient(t, outputs)

	for _, n := range r.Plan.Nodes() {
		all, err := safe.ReaderListAll[*network.AddressStatus](client.WithNode(t.Context(), n.Address.String()), talos.COSI)
		require.NoError(t, err)

		for address := range all.All() {
			if address.TypedSpec().Address.Addr() == shared.Addr() {
				holders = append(holders, n.Name)
			}
		}
	}

	require.Len(t, holders, 1)

	v, there := r.Lab.World().Snapshot().VM(holders[0])
	require.True(t, there)

	_, err = r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, v.Host, v.ID)
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		n, err := kubernetesClient(t, outputs).CoreV1().Nodes().Get(t.Context(), holders[0], metav1.GetOptions{})

		return err == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
	}, wait, 50*time.Millisecond)
}

// cilium is the version of Cilium's agents.
func cilium(t *testing.T, outputs auto.OutputMap) string {
	t.Helper()

	agents, err := kubernetesClient(t, outputs).AppsV1().DaemonSets(metav1.NamespaceSystem).Get(t.Context(), "cilium",
		metav1.GetOptions{})
	require.NoError(t, err)

	_, tag, _ := strings.Cut(agents.Spec.Template.Spec.Containers[0].Image, ":")
	tag, _, _ = strings.Cut(tag, "@")

	return tag
}

// runs are the nodes of the system's pods whose names start with a text.
func runs(t *testing.T, outputs auto.OutputMap, prefix string) []string {
	t.Helper()

	pods, err := kubernetesClient(t, outputs).CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var found []string

	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Name, prefix) {
			found = append(found, pod.Spec.NodeName)
		}
	}

	return found
}

// onTailnet says which nodes run Tailscale's client.
func onTailnet(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) map[string]bool {
	t.Helper()

	api, _ := talosClient(t, outputs)
	found := map[string]bool{}

	for _, n := range r.Plan.Nodes() {
		services, err := api.ServiceInfo(client.WithNodes(context.WithoutCancel(t.Context()), n.Address.String()),
			"ext-tailscale")
		require.NoError(t, err)

		found[n.Name] = slices.ContainsFunc(services,
			func(s client.ServiceInfo) bool { return s.Service.GetState() == "Running" })
	}

	return found
}
