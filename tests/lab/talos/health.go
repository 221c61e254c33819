package talos

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// clusterService is the health check that runs on a node, which talosctl asks for by default.
type clusterService struct {
	cluster.UnimplementedClusterServiceServer

	node *node
}

// The memory that a machine needs at least, MiB (Talos: pkg/minimal).
const (
	minimalControlPlaneMemory = 1698
	minimalWorkerMemory       = 874
)

// health is one run of the checks, for the nodes that the caller named or that discovery knows.
type health struct {
	*clusterService

	controlPlanes, workers []string
}

// HealthCheck waits until the cluster is healthy, check by check, and says what it waits for in the words of Talos
// (Talos: pkg/cluster/check/default.go).
func (s *clusterService) HealthCheck(in *cluster.HealthCheckRequest,
	stream cluster.ClusterService_HealthCheckServer,
) error {
	if !s.node.controlPlane() {
		return status.Error(codes.Unimplemented, "health check is only available on control plane nodes")
	}

	h := &health{
		clusterService: s, controlPlanes: in.GetClusterInfo().GetControlPlaneNodes(),
		workers: in.GetClusterInfo().GetWorkerNodes(),
	}

	for _, address := range h.nodes() {
		if _, err := netip.ParseAddr(address); err != nil {
			return status.Error(codes.Unknown, err.Error())
		}
	}

	if len(h.nodes()) == 0 {
		h.discover()
	}

	ctx, cancel := context.WithTimeout(stream.Context(), in.GetWaitTimeout().AsDuration())
	defer cancel()

	if err := stream.Send(progress(fmt.Sprintf("discovered nodes: %q", h.nodes()))); err != nil {
		return err
	}

	for _, check := range []struct {
		name    string
		problem func() string
	}{
		{"etcd to be healthy", func() string { return h.each(h.controlPlanes, (*node).etcdProblem) }},
		{"etcd members to be consistent across nodes", func() string { return "" }},
		{"etcd members to be control plane nodes", h.membersProblem},
		{"apid to be ready", func() string { return h.each(h.nodes(), func(*node) string { return "" }) }},
		{"all nodes memory sizes", func() string { return h.each(h.nodes(), (*node).memoryProblem) }},
		{"all nodes disk sizes", func() string { return "" }},
		{"no diagnostics", func() string { return "" }},
		{"kubelet to be healthy", func() string { return h.each(h.controlPlanes, (*node).kubeletHealth) }},
		{"all nodes to finish boot sequence", func() string { return h.each(h.nodes(), (*node).bootProblem) }},
		{"all k8s nodes to report", h.reportProblem},
		{
			"all control plane static pods to be running",
			func() string { return h.each(h.controlPlanes, (*node).staticPodsProblem) },
		},
		{
			"all control plane components to be ready",
			func() string { return h.each(h.controlPlanes, (*node).staticPodsProblem) },
		},
		{"all k8s nodes to report ready", h.readyProblem},
		{"kube-proxy to report ready", func() string { return "" }},
		{"coredns to report ready", func() string { return "" }},
		{"all k8s nodes to report schedulable", h.schedulableProblem},
	} {
		if err := s.wait(ctx, stream, check.name, check.problem); err != nil {
			return err
		}
	}

	return nil
}

func (s *clusterService) wait(ctx context.Context, stream cluster.ClusterService_HealthCheckServer, name string,
	problem func() string,
) error {
	said := ""

	for now := "..."; ; now = problem() {
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

		if now != "..." && !pause(ctx, retry) {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

func progress(message string) *cluster.HealthCheckProgress {
	return &cluster.HealthCheckProgress{Metadata: &common.Metadata{}, Message: message}
}

func (h *health) nodes() []string { return slices.Concat(h.controlPlanes, h.workers) }

// discover takes the nodes from the discovery service; a node's first address is the one that counts.
func (h *health) discover() {
	for _, a := range h.node.fw.discovery.of(h.node) {
		switch {
		case len(a.Addresses) == 0:
		case a.MachineType.IsControlPlane():
			h.controlPlanes = append(h.controlPlanes, a.Addresses[0].String())
		default:
			h.workers = append(h.workers, a.Addresses[0].String())
		}
	}
}

// each asks every node, and names those that have something to tell.
func (h *health) each(addresses []string, problem func(*node) string) string {
	var all []string

	for _, address := range addresses {
		if n := h.peer(address); n == nil {
			all = append(all,
				fmt.Sprintf(
					"\t* %s: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: "+
						"dial tcp %s:50000: connect: connection refused\"", address, address))
		} else if text := problem(n); text != "" {
			all = append(all, fmt.Sprintf("\t* %s: %s", address, text))
		}
	}

	switch len(all) {
	case 0:
		return ""
	case 1:
		return "1 error occurred:\n" + all[0] + "\n\n"
	default:
		return fmt.Sprintf("%d errors occurred:\n%s\n\n", len(all), strings.Join(all, "\n"))
	}
}

// peer is the node of this cluster that has an address and answers there.
func (h *health) peer(address string) *node {
	for _, n := range h.node.fw.nodes() {
		if cfg := n.config(); cfg != nil && clusterOf(cfg).ID() == clusterOf(h.node.config()).ID() && n.owns(address) &&
			n.services.running("apid") {
			return n
		}
	}

	return nil
}

func (n *node) etcdProblem() string {
	if !n.services.running("etcd") {
		return `service "etcd" not in expected state "Running"`
	}

	return n.etcdHealth()
}

func (n *node) memoryProblem() string {
	minimal := minimalWorkerMemory
	if n.controlPlane() {
		minimal = minimalControlPlaneMemory
	}

	if total := int(n.memory() >> 10); total < minimal {
		return fmt.Sprintf("node %q does not meet memory requirements: expected at least %d MiB, actual %d MiB", n.address(),
			minimal, total)
	}

	return ""
}

func (n *node) bootProblem() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageRunning {
		return "expected machine stage running, got " + n.stage
	}

	return ""
}

func (n *node) staticPodsProblem() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	if !n.kube.serving {
		return "missing static pods on node " + n.hostname +
			": [kube-system/kube-apiserver kube-system/kube-controller-manager kube-system/kube-scheduler]"
	}

	return ""
}

func (h *health) membersProblem() string {
	var members []string

	if m := h.node.membership(); m != nil {
		listed, err := m.cluster.list()
		if err != nil {
			return err.Error()
		}

		for _, member := range listed {
			members = append(members, member.address.String())
		}
	}

	if slices.ContainsFunc(members, func(a string) bool { return !slices.Contains(h.controlPlanes, a) }) {
		return fmt.Sprintf("etcd member ips %q are not subset of control plane node ips %q", members, h.controlPlanes)
	}

	return ""
}

// kubernetes is the cluster as its API shows it, nil without one.
func (h *health) kubernetes() clusterState {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()

	return h.node.kube.in
}

func (h *health) reportProblem() string {
	in := h.kubernetes()
	if in == nil {
		return "connection refused"
	}

	var unexpected []netip.Addr

	reported := map[string]bool{}

	for _, n := range in.Nodes() {
		for _, a := range n.Status.Addresses {
			if a.Type != corev1.NodeInternalIP {
				continue
			}

			reported[a.Address] = true

			if addr, err := netip.ParseAddr(a.Address); err == nil && !slices.Contains(h.nodes(), a.Address) {
				unexpected = append(unexpected, addr)
			}
		}
	}

	for _, a := range h.nodes() {
		if !reported[a] {
			return fmt.Sprintf("can't find expected node with IPs %q", []string{a})
		}
	}

	if len(unexpected) > 0 {
		slices.SortFunc(unexpected, netip.Addr.Compare)

		return fmt.Sprintf("unexpected nodes with IPs %q", unexpected)
	}

	return ""
}

func (h *health) readyProblem() string {
	var names []string

	for _, n := range h.kubernetes().Nodes() {
		if _, ready := h.kubernetes().NodeReady(n.Name); !ready {
			names = append(names, n.Name)
		}
	}

	if len(names) > 0 {
		return fmt.Sprintf("some nodes are not ready: %v", names)
	}

	return ""
}

func (h *health) schedulableProblem() string {
	for _, n := range h.kubernetes().Nodes() {
		if n.Spec.Unschedulable {
			return fmt.Sprintf("some nodes are not schedulable: %v", []string{n.Name})
		}
	}

	return ""
}
