package talos_test

import (
	"context"
	"fmt"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A control plane and a worker, cloned from a template, become a cluster.
func TestClusterFromTemplate(t *testing.T) {
	r := newHarness(t)
	cp, worker := r.machine(11, template()).on(), r.machine(21, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))
	c.bootstrap(cp)

	err := c.client(cp).Bootstrap(t.Context(), &machineapi.BootstrapRequest{})
	require.Equal(t, codes.AlreadyExists, client.StatusCode(err))

	cp.stage("running")
	worker.stage("running")

	api := c.kubernetes(cp)
	nodesReady(r, api.CoreV1().Nodes().List, "cp-1", "worker-1")

	version, err := api.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v"+kubeVersion, version.GitVersion)

	body, err := api.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ok", string(body))
}

type (
	listOptions = metav1.ListOptions
	nodeList    = corev1.NodeList
)

// nodesReady waits until exactly these nodes are there and Ready.
func nodesReady(r *harness, list func(context.Context, metav1.ListOptions) (*corev1.NodeList, error), names ...string) {
	r.Helper()
	r.until("nodes are Ready", func(ctx context.Context) error {
		got, err := list(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		ready := map[string]bool{}

		for _, n := range got.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready[n.Name] = true
				}
			}
		}

		if len(got.Items) != len(names) {
			return fmt.Errorf("%d nodes, want %d", len(got.Items), len(names))
		}

		for _, name := range names {
			if !ready[name] {
				return fmt.Errorf("%s is not Ready", name)
			}
		}

		return nil
	})
}
