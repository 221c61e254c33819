package talos_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
)

// The health check that runs on a control plane goes through Talos' checks in Talos' order, for the nodes it is given.
func TestHealthCheck(t *testing.T) {
	r := newHarness(t)
	cp, worker := r.machine(11, template()).on(), r.machine(21, template()).on()
	c := r.cluster(cp.addr())

	c.apply(cp, c.config(configmachine.TypeControlPlane, "cp-1"))
	c.apply(worker, c.config(configmachine.TypeWorker, "worker-1"))
	c.bootstrap(cp)
	nodesReady(r, c.kubernetes(cp).CoreV1().Nodes().List, "cp-1", "worker-1")

	check := func(timeout time.Duration, info *clusterapi.ClusterInfo) (string, error) {
		stream, err := c.client(cp).ClusterHealthCheck(t.Context(), timeout, info)
		require.NoError(t, err)
		require.NoError(t, stream.CloseSend())

		var lines []string

		for {
			msg, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return strings.Join(lines, "\n"), nil
			}

			if err != nil {
				return strings.Join(lines, "\n"), err
			}

			lines = append(lines, msg.GetMessage())
		}
	}

	said, err := check(20*time.Second, nil)
	require.NoError(t, err, said)
	require.Contains(t, said, fmt.Sprintf(
		"discovered nodes: [%q %q]\nwaiting for etcd to be healthy: ...\nwaiting for etcd to be healthy: OK\n", cp.addr(),
		worker.addr()))
	require.True(t, strings.HasSuffix(said, "waiting for all k8s nodes to report schedulable: OK"), said)

	said, err = check(time.Second, &clusterapi.ClusterInfo{ControlPlaneNodes: []string{cp.addr()}})
	require.ErrorContains(t, err, "context deadline exceeded")
	require.True(t, strings.HasSuffix(said,
		fmt.Sprintf("waiting for all k8s nodes to report: unexpected nodes with IPs [%q]", worker.addr())), said)

	missing := r.addr(99).String()
	said, err = check(time.Second, &clusterapi.ClusterInfo{
		ControlPlaneNodes: []string{cp.addr()},
		WorkerNodes:       []string{worker.addr(), missing},
	})
	require.ErrorContains(t, err, "context deadline exceeded")
	require.Contains(t, said, "waiting for apid to be ready: 1 error occurred:\n\t* "+missing+
		": rpc error: code = Unavailable")

	said, err = check(time.Second, &clusterapi.ClusterInfo{
		ControlPlaneNodes: []string{worker.addr()},
		WorkerNodes:       []string{cp.addr()},
	})
	require.ErrorContains(t, err, "context deadline exceeded")
	require.Contains(t, said, `waiting for etcd to be healthy: 1 error occurred:`)
}
