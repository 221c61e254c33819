package talos

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// clusterService is the health check that runs on a node, which talosctl asks for by default.
type clusterService struct {
	cluster.UnimplementedClusterServiceServer

	node *node
}

// HealthCheck waits until the cluster is healthy as the node sees it: itself, its etcd, its Kubernetes.
func (s *clusterService) HealthCheck(in *cluster.HealthCheckRequest, stream cluster.ClusterService_HealthCheckServer) error {
	if !s.node.controlPlane() {
		return status.Error(codes.Unimplemented, "health check is only available on control plane nodes")
	}

	timeout := 20 * time.Minute
	if in.GetWaitTimeout() != nil {
		timeout = in.GetWaitTimeout().AsDuration()
	}

	ctx, cancel := context.WithTimeout(stream.Context(), timeout)
	defer cancel()

	for _, check := range []struct {
		name    string
		problem func() string
	}{
		{"etcd to be healthy", s.node.etcdHealth},
		{"apid to be ready", func() string { return "" }},
		{"kubelet to be healthy", s.node.kubeletHealth},
		{"all nodes to finish boot sequence", s.bootProblem},
		{"all k8s nodes to report ready", s.nodesProblem},
	} {
		if err := s.wait(ctx, stream, check.name, check.problem); err != nil {
			return err
		}
	}

	return nil
}

func (s *clusterService) wait(ctx context.Context, stream cluster.ClusterService_HealthCheckServer, name string, problem func() string) error {
	said := ""

	for {
		now := problem()
		if now == "" {
			return stream.Send(progress("waiting for " + name + ": OK"))
		}

		if now != said {
			if err := stream.Send(progress("waiting for " + name + ": " + now)); err != nil {
				return err
			}

			said = now
		}

		select {
		case <-s.node.closing:
			return status.Error(codes.Unavailable, "the node is going down")
		default:
		}

		if !pause(ctx, retry) {
			return status.Error(codes.DeadlineExceeded, "waiting for "+name+": "+now)
		}
	}
}

func progress(message string) *cluster.HealthCheckProgress {
	return &cluster.HealthCheckProgress{Metadata: &common.Metadata{}, Message: message}
}

func (s *clusterService) bootProblem() string {
	for _, n := range s.peers() {
		n.mu.Lock()
		stage := n.stage
		n.mu.Unlock()

		if stage != StageRunning {
			return fmt.Sprintf("%s: stage %s", n.name(), stage)
		}
	}

	return ""
}

func (s *clusterService) nodesProblem() string {
	for _, n := range s.peers() {
		n.mu.Lock()
		in := n.kube.in
		n.mu.Unlock()

		if in == nil {
			return n.nodename() + " has not joined"
		}

		if _, ready := in.NodeReady(n.nodename()); !ready {
			return n.nodename() + " is not ready"
		}
	}

	return ""
}

// peers are the nodes of the same cluster that run.
func (s *clusterService) peers() []*node {
	var out []*node

	for _, n := range s.node.fw.nodes() {
		if cfg := n.config(); cfg != nil && cfg.Cluster().ID() == s.node.config().Cluster().ID() {
			out = append(out, n)
		}
	}

	return out
}
