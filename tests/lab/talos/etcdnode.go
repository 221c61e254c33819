package talos

import (
	"context"
	"errors"
	"net/netip"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

var errNoAddress = errors.New("the node has no address yet")

// runEtcd is a control plane's etcd: it starts with the data on the disk, with those of a cluster it can join, or with what
// a bootstrap leaves.
func (n *node) runEtcd(ctx context.Context) {
	m := n.awaitMembership(ctx)
	if m == nil {
		return
	}

	up, _ := m.cluster.spans()
	if !n.wait("etcd", n.fw.opts.Latencies.Etcd, up) {
		return
	}

	if err := m.cluster.setRunning(m.id, true); err != nil {
		n.sys.log("etcd: %v", err)
		n.services.set("etcd", stateFailed, "Failed to run: "+err.Error(), nil)

		return
	}

	m.cluster.mu.Lock()
	if m.cluster.up == nil {
		m.cluster.up = n.span()
	}
	m.cluster.mu.Unlock()

	n.services.set("etcd", stateRunning, "Started task etcd", n.etcdHealth)
	n.background(n.runControlPlane)
	n.background(func(ctx context.Context) { n.runVIP(ctx, m) })
	<-ctx.Done()

	_ = m.cluster.setRunning(m.id, false) // an error says that the member is no longer one
}

func (n *node) membership() *membership {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.member
}

// awaitMembership waits for etcd data: those that are there, a bootstrap, or a cluster to join.
func (n *node) awaitMembership(ctx context.Context) *membership {
	for {
		if m := n.membership(); m != nil {
			return m
		}

		if m := n.joinEtcd(ctx); m != nil && n.setMembership(m) {
			return m
		}

		select {
		case <-n.starting:
		default:
			if !pause(ctx, retry) {
				return nil
			}
		}
	}
}

// setMembership writes etcd data to the disk, unless there are some already.
func (n *node) setMembership(m *membership) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.member != nil {
		return false
	}

	n.member = m
	n.store(func(i *Installed) { i.etcd = m })

	return true
}

// joinEtcd asks the control planes that can be found to take the node into their cluster, nil when none does. Their peer
// protocol is not spoken: what it would find out, that a member with the same CA runs at the address, is looked up.
func (n *node) joinEtcd(ctx context.Context) *membership {
	peers, err := n.controlPlanes(ctx)
	if err != nil {
		return nil
	}

	_, fqdn := n.fqdn()

	for _, peer := range peers {
		address, err := netip.ParseAddr(peer)
		if err != nil {
			continue
		}

		c := n.fw.etcdAt(address)
		if c == nil || c.ca != n.etcdCA() {
			continue
		}

		if m, err := c.join(fqdn, n.address()); err == nil {
			return m
		}
	}

	return nil
}

// etcdAt returns the cluster of the member that runs at an address, nil when none does.
func (f *Firmware) etcdAt(address netip.Addr) *etcdCluster {
	for _, n := range f.nodes() {
		if !n.owns(address.String()) || !n.services.running("etcd") {
			continue
		}

		if m := n.membership(); m != nil {
			return m.cluster
		}
	}

	return nil
}

// etcdCA identifies the CA of the etcd cluster that the node's configuration belongs to.
func (n *node) etcdCA() string {
	ca := n.config().Cluster().Etcd().CA()
	if ca == nil {
		return ""
	}

	sum, err := x509.SPKIFingerprintFromPEM(ca.Crt)
	if err != nil {
		return ""
	}

	return sum.String()
}

// etcdHealth is the health check of the etcd service: a member without a leader is not healthy.
func (n *node) etcdHealth() string {
	m := n.membership()
	if m == nil {
		return "etcd is not running"
	}

	if err := m.cluster.healthy(); err != nil {
		return err.Error()
	}

	return ""
}

// Bootstrap makes the node's etcd the first member of a cluster (Talos: v1alpha1_server.go).
func (s *machined) Bootstrap(_ context.Context, in *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	n := s.node

	switch {
	case !n.services.running("cri"):
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case !n.controlPlane():
		return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	case in.GetRecoverEtcd():
		return nil, status.Error(codes.Unimplemented, "method Bootstrap with recover_etcd not implemented")
	}

	_, fqdn := n.fqdn()
	if !n.setMembership(bootstrapEtcd(n.etcdCA(), fqdn, n.address())) {
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	select {
	case n.starting <- struct{}{}:
	default:
	}

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

// etcd returns the node's membership in a cluster that answers.
func (s *machined) etcd(api string) (*membership, error) {
	if err := s.onlyControlPlane(api); err != nil {
		return nil, err
	}

	m := s.node.membership()
	if m == nil || !s.node.services.running("etcd") {
		return nil, status.Error(codes.Unknown, "failed to create etcd client: no etcd endpoints are available")
	}

	return m, nil
}

// EtcdMemberList lists the members.
func (s *machined) EtcdMemberList(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	m, err := s.etcd("member list")
	if err != nil {
		return nil, err
	}

	if err := m.cluster.healthy(); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}

	out := &machineapi.EtcdMembers{}

	for _, member := range m.cluster.list() {
		out.LegacyMembers = append(out.LegacyMembers, member.name)
		out.Members = append(out.Members, &machineapi.EtcdMember{
			Id: member.id, Hostname: member.name, PeerUrls: []string{member.peerURL()}, ClientUrls: []string{member.clientURL()}, IsLearner: member.learner,
		})
	}

	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{out}}, nil
}

// EtcdStatus is the status of the node's own member.
func (s *machined) EtcdStatus(context.Context, *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	m, err := s.etcd("etcd status")
	if err != nil {
		return nil, err
	}

	c := m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()

	st := &machineapi.EtcdMemberStatus{
		MemberId: m.id, ProtocolVersion: "3.6.7", StorageVersion: "3.6.0", DbSize: 4 << 20, DbSizeInUse: 2 << 20,
		Leader: c.leader, RaftIndex: c.index, RaftAppliedIndex: c.index, RaftTerm: c.term,
	}

	if own := c.find(m.id); own != nil {
		st.IsLearner = own.learner
	}

	if err := c.healthyLocked(); err != nil {
		st.Errors = []string{err.Error()}
	}

	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: st}}}, nil
}

// EtcdAlarmList has no alarms.
func (s *machined) EtcdAlarmList(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	if _, err := s.etcd("etcd alarm list"); err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{}}}, nil
}
