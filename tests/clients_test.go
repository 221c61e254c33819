package tests

import (
	"context"
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

	"talos-proxmox/stacks"
	"talos-proxmox/tests/rehearsal"
)

// TestClients reads a cluster with clients that are not the program's own, through nothing but the stack's outputs.
func TestClients(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	outputs := up(t, r.Stack).Outputs
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
			addressOf(r, "k3s-dev-control-1"): r.Plan.Talos, addressOf(r, "k3s-dev-gpu-1"): r.Plan.Talos, addressOf(r, "k3s-dev-worker-1"): r.Plan.Talos,
		}, talosVersions(t, r, outputs))
	})
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

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(outputs[stacks.OutputKubeconfig].Value.(string)))
	require.NoError(t, err)

	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	return api
}

// talosClient is Talos' own client with the stack's talosconfig, and the nodes that this names.
func talosClient(t *testing.T, outputs auto.OutputMap) (*client.Client, []string) {
	t.Helper()

	config, err := clientconfig.FromString(outputs[stacks.OutputTalosconfig].Value.(string))
	require.NoError(t, err)

	api, err := client.New(t.Context(), client.WithConfig(config))
	require.NoError(t, err)

	t.Cleanup(func() { _ = api.Close() })

	return api, config.Contexts[config.Context].Nodes
}
