package tests

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
)

// TestClients reads a cluster with clients that are not the program's own, through nothing but the stack's outputs.
func TestClients(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))

	t.Run("client-go lists the nodes ready", func(t *testing.T) {
		api := kubernetesClient(t, outputs)

		nodes, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)

		ready := map[string]bool{}
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					ready[n.Name] = c.Status == corev1.ConditionTrue
				}
			}
		}

		assert.Equal(t, map[string]bool{"k3s-dev-control-1": true, "k3s-dev-gpu-1": true, "k3s-dev-worker-1": true}, ready)

		version, err := api.Discovery().ServerVersion()
		require.NoError(t, err)
		assert.Equal(t, r.Plan.Kubernetes, version.GitVersion)
	})

	t.Run("the Talos client gets the version of each node", func(t *testing.T) {
		assert.Equal(t, map[string]string{
			addressOf(r, "k3s-dev-control-1"): r.Plan.Talos, addressOf(r, "k3s-dev-gpu-1"): r.Plan.Talos,
			addressOf(r, "k3s-dev-worker-1"): r.Plan.Talos,
		}, talosVersions(t, r, outputs))
	})

	t.Run("the hints do as they are written", func(t *testing.T) {
		dir := r.Stack.Workspace().WorkDir()
		assert.NoDirExists(t, filepath.Join(dir, "talos"), "no file is written that was not asked for")

		h := hinted(t, r, outputs)

		for _, name := range []string{"get_kubeconfig", "get_talosconfig", "contract"} {
			assert.NotNil(t, h(name), name)
		}

		for _, name := range []string{"kubeconfig", "talosconfig"} {
			info, err := os.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		}

		assert.Equal(t, []string{
			"--kubeconfig", "./kubeconfig", "--server", "https://" + addressOf(r, "k3s-dev-control-1") + ":6443", "get", "nodes",
			"-o", "wide",
		}, h("kubectl"))
		assert.Equal(t, []string{
			"--talosconfig", "./talosconfig", "--endpoints", addressOf(r, "k3s-dev-control-1"), "--nodes",
			addressOf(r, "k3s-dev-control-1") + "," + addressOf(r, "k3s-dev-worker-1") + "," + addressOf(r, "k3s-dev-gpu-1"),
			"version",
		}, h("talosctl"))

		config, err := clientcmd.LoadFromFile(filepath.Join(dir, "kubeconfig"))
		require.NoError(t, err)
		assert.Equal(t, h("kubectl")[3], config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server)

		talosconfig, err := clientconfig.Open(filepath.Join(dir, "talosconfig"))
		require.NoError(t, err)
		assert.Equal(t, []string{addressOf(r, "k3s-dev-control-1")}, talosconfig.Contexts[talosconfig.Context].Endpoints)
	})
}

// hinted runs hints by their names in a shell, with the pulumi CLI and in the place of others what prints its
// arguments. It returns what was printed, line by line.
func hinted(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) func(name string) []string {
	t.Helper()

	bin := t.TempDir()
	require.NoError(t, os.Symlink(r.Engine().CLI(), filepath.Join(bin, "pulumi")))

	for _, name := range []string{"kubectl", "talosctl"} {
		writeScript(t, bin, name, "printf '%s\\n' \"$@\"\n")
	}

	hints := outputs[contract.OutputNextSteps].Value.(map[string]any)

	return func(name string) []string {
		shell := exec.CommandContext(t.Context(), "sh", "-c", hints[name].(string))
		shell.Dir, shell.Env = r.Stack.Workspace().WorkDir(), append(r.Backend.Environ(), "PATH="+bin+":/usr/bin:/bin")
		printed, err := shell.Output()
		require.NoError(t, err, name)

		return strings.Split(strings.TrimSpace(string(printed)), "\n")
	}
}

// talosVersions asks every node of a talosconfig through its endpoints, as talosctl does.
func talosVersions(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) map[string]string {
	t.Helper()

	api, _ := talosClient(t, outputs)

	var addresses []string
	for _, n := range r.Plan.Nodes() {
		addresses = append(addresses, n.Address.String())
	}

	reply, err := api.Version(client.WithNodes(context.WithoutCancel(t.Context()), addresses...))
	require.NoError(t, err)

	found := map[string]string{}
	for _, m := range reply.GetMessages() {
		found[m.GetMetadata().GetHostname()] = m.GetVersion().GetTag()
	}

	return found
}

// kubernetesClient is client-go with the stack's kubeconfig.
func kubernetesClient(t *testing.T, outputs auto.OutputMap) *kubernetes.Clientset {
	t.Helper()

	return kubernetesAt(t, outputs, "")
}

// kubernetesAt is the same by one server, wherever the kubeconfig leads; empty: there.
func kubernetesAt(t *testing.T, outputs auto.OutputMap, address string) *kubernetes.Clientset {
	t.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(outputs[contract.OutputKubeconfig].Value.(string)))
	require.NoError(t, err)

	if address != "" {
		config.Host = "https://" + net.JoinHostPort(address, "6443")
	}

	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	return api
}

// talosClient is Talos' own client with the stack's talosconfig, and the nodes that this names.
func talosClient(t *testing.T, outputs auto.OutputMap) (*client.Client, []string) {
	t.Helper()

	config, err := clientconfig.FromString(outputs[contract.OutputTalosconfig].Value.(string))
	require.NoError(t, err)

	api, err := client.New(t.Context(), client.WithConfig(config))
	require.NoError(t, err)

	t.Cleanup(func() { _ = api.Close() })

	return api, config.Contexts[config.Context].Nodes
}
