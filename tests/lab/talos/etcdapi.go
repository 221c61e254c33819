package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/blang/semver/v4"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/tests/lab/kube"
)

// errOnlyMember is Talos' own refusal.
var errOnlyMember = errors.New("cannot forfeit leadership, only one member")

// Bootstrap makes the node's etcd the first member of a cluster (Talos: v1alpha1_server.go).
func (s *machined) Bootstrap(_ context.Context, in *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse,
	error,
) {
	n := s.node

	switch {
	case !n.services.running("cri"):
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case !n.controlPlane():
		return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	case n.membership() != nil:
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	stored := kube.NewCluster()

	if in.GetRecoverEtcd() {
		var err error
		if stored, err = n.recovered(in.GetRecoverSkipHashCheck()); err != nil {
			// who asked has his answer already: it is the service that fails
			n.sys.log("etcd: %v", err)
			n.services.set("etcd", stateFailed, "Failed to run pre stage: "+err.Error(), nil)

			return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
		}
	}

	host, _ := n.fqdn()
	if !n.setMembership(newEtcd(n.fw.quorum, n.etcdCA(), stored, host, n.address())) {
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	select {
	case n.starting <- struct{}{}:
	default:
	}

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

// local returns the node's own etcd member, as a client on the node reaches it.
func (n *node) localEtcd() (*membership, error) {
	m := n.membership()
	if m == nil || !n.services.running("etcd") {
		return nil,
			errors.New(
				`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:2379: connect: connection refused"`)
	}

	return m, nil
}

// anyEtcd returns the etcd cluster as a client reaches it that tries all control planes: it waits for one to answer as
// long as the caller does.
func (n *node) anyEtcd(ctx context.Context) (*etcdCluster, error) {
	for {
		if m, err := n.localEtcd(); err == nil && m.cluster.has(m.id) {
			return m.cluster, nil
		}

		if c := n.otherEtcd(ctx); c != nil {
			return c, nil
		}

		select {
		case <-time.After(retry):
		case <-n.closing:
			return nil, status.Error(codes.Unavailable, "the node is going down")
		case <-n.ctx.Done():
			return nil, status.Error(codes.Unavailable, "the node is going down")
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// EtcdMemberList lists the members.
func (s *machined) EtcdMemberList(ctx context.Context,
	in *machineapi.EtcdMemberListRequest,
) (*machineapi.EtcdMemberListResponse, error) {
	if err := s.onlyControlPlane("member list"); err != nil {
		return nil, err
	}

	var c *etcdCluster

	if in.GetQueryLocal() {
		m, err := s.node.localEtcd()
		if err == nil {
			err = m.cluster.answers(m.id)
		}

		if err != nil {
			return nil, err
		}

		c = m.cluster
	} else {
		var err error
		if c, err = s.node.anyEtcd(ctx); err != nil {
			return nil, err
		}
	}

	if err := c.healthy(); err != nil {
		return nil, err
	}

	out := &machineapi.EtcdMembers{}

	for _, m := range c.list() {
		member := &machineapi.EtcdMember{Id: m.id, PeerUrls: []string{m.peerURL()}, IsLearner: m.learner}
		if m.started {
			member.Hostname, member.ClientUrls = m.name, []string{m.clientURL()}
		}

		out.LegacyMembers = append(out.LegacyMembers, member.GetHostname())
		out.Members = append(out.Members, member)
	}

	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{out}}, nil
}

// EtcdRemoveMemberByID removes any member.
func (s *machined) EtcdRemoveMemberByID(ctx context.Context,
	in *machineapi.EtcdRemoveMemberByIDRequest,
) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	if err := s.onlyControlPlane("etcd remove member"); err != nil {
		return nil, err
	}

	c, err := s.node.anyEtcd(ctx)
	if err != nil {
		return nil, err
	}

	err = c.remove(in.GetMemberId(), s.node.name()+": removes "+c.memberName(in.GetMemberId()))
	if err != nil {
		err = fmt.Errorf("failed to remove member %d: %w", in.GetMemberId(), err)
	}

	switch {
	case errors.Is(err, errMemberNotFound):
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return nil, fmt.Errorf("failed to remove member: %w", err)
	}

	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, nil
}

// memberName is how the log calls a member.
func (c *etcdCluster) memberName(id uint64) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	if m := c.find(id); m != nil {
		return m.name
	}

	return fmt.Sprintf("%x", id)
}

// leaveTimeout is how long a member asks again that etcd does not let go because others are not there (Talos:
// internal/pkg/etcd/etcd.go, LeaveCluster).
const leaveTimeout = 5 * time.Minute

// EtcdLeaveCluster takes the node's member out of the cluster, ends its etcd and wipes its data.
func (s *machined) EtcdLeaveCluster(ctx context.Context,
	_ *machineapi.EtcdLeaveClusterRequest,
) (*machineapi.EtcdLeaveClusterResponse, error) {
	if err := s.onlyControlPlane("etcd leave"); err != nil {
		return nil, err
	}

	if err := s.node.leaveEtcd(ctx); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}

	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

func (n *node) leaveEtcd(ctx context.Context) error {
	c, err := n.anyEtcd(ctx)
	if err != nil {
		return err
	}

	m, err := n.localEtcd()
	if err != nil {
		return fmt.Errorf("failed to get local etcd member ID: %w", err)
	}

	for began := time.Now(); ; {
		err := c.remove(m.id, n.name()+": leaves etcd")
		if err == nil || errors.Is(err, errMemberNotFound) {
			n.stopEtcd(true)
			n.fw.history.note(n.name(), LeftEtcd, "")

			return nil
		}

		err = fmt.Errorf("failed to remove member %d: %w", m.id, err)

		if !errors.Is(err, errEtcdUnhealthy) || time.Since(began) > leaveTimeout {
			return err
		}

		if !pause(ctx, retry) || n.ctx.Err() != nil {
			return err
		}
	}
}

// EtcdForfeitLeadership makes another member the leader, if the node's own is.
func (s *machined) EtcdForfeitLeadership(ctx context.Context,
	_ *machineapi.EtcdForfeitLeadershipRequest,
) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	if err := s.onlyControlPlane("etcd forfeit leadership"); err != nil {
		return nil, err
	}

	c, err := s.node.anyEtcd(ctx)
	if err != nil {
		return nil, err
	}

	m, err := s.node.localEtcd()
	if err != nil {
		return nil, fmt.Errorf("failed to get local etcd member ID: %w", err)
	}

	leader, err := c.forfeit(m.id, s.node.name()+": forfeits the leadership")
	if err != nil {
		return nil, fmt.Errorf("failed to forfeit leadership: %w", err)
	}

	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{{Member: leader}}}, nil
}

// EtcdStatus is the status of the node's own member.
func (s *machined) EtcdStatus(context.Context, *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	if err := s.onlyControlPlane("etcd status"); err != nil {
		return nil, err
	}

	m, err := s.node.localEtcd()
	if err != nil {
		return nil, fmt.Errorf("failed to query etcd status: %w", err)
	}

	return &machineapi.EtcdStatusResponse{
		Messages: []*machineapi.EtcdStatus{{MemberStatus: m.cluster.status(m.id)}},
	}, nil
}

// status is what a member says of itself.
func (c *etcdCluster) status(id uint64) *machineapi.EtcdMemberStatus {
	c.mu.Lock()
	defer c.mu.Unlock()

	st := &machineapi.EtcdMemberStatus{
		MemberId: id, ProtocolVersion: "3.6.7", StorageVersion: "3.6.0", DbSize: 4 << 20, DbSizeInUse: 2 << 20,
		Leader: c.leader, RaftIndex: c.index, RaftAppliedIndex: c.index, RaftTerm: c.term,
	}

	if v, err := semver.ParseTolerant(c.version); err == nil {
		st.ProtocolVersion, st.StorageVersion = v.String(), fmt.Sprintf("%d.%d.0", v.Major, v.Minor)
	}

	if own := c.find(id); own != nil {
		st.IsLearner = own.learner

		if own.cut {
			st.Leader = 0
		}
	}

	if st.GetLeader() == 0 {
		st.Errors = append(st.Errors, errNoLeader.Error())
	}

	for _, id := range c.alarms {
		st.Errors = append(st.Errors, fmt.Sprintf("memberID:%d alarm:NOSPACE ", id))
	}

	return st
}

// alarm notes that a member is out of space.
func (c *etcdCluster) alarm(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !slices.Contains(c.alarms, id) {
		c.alarms = append(c.alarms, id)
	}
}

// takeAlarms returns the alarms of all members, and ends them if they are to be disarmed.
func (c *etcdCluster) takeAlarms(disarm bool) []*machineapi.EtcdMemberAlarm {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []*machineapi.EtcdMemberAlarm
	for _, id := range c.alarms {
		out = append(out, &machineapi.EtcdMemberAlarm{MemberId: id, Alarm: machineapi.EtcdMemberAlarm_NOSPACE})
	}

	if disarm {
		c.alarms = nil
	}

	return out
}

// EtcdAlarmList lists the alarms of all members.
func (s *machined) EtcdAlarmList(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	alarms, err := s.alarms("failed to list etcd alarms", false)
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: alarms}}}, nil
}

// EtcdAlarmDisarm ends them.
func (s *machined) EtcdAlarmDisarm(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse, error) {
	alarms, err := s.alarms("failed to disarm etcd alarm", true)
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmDisarmResponse{Messages: []*machineapi.EtcdAlarmDisarm{{MemberAlarms: alarms}}}, nil
}

func (s *machined) alarms(failed string, disarm bool) ([]*machineapi.EtcdMemberAlarm, error) {
	if err := s.onlyControlPlane("etcd alarm list"); err != nil {
		return nil, err
	}

	m, err := s.node.localEtcd()
	if err == nil {
		err = m.cluster.answers(m.id)
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", failed, err)
	}

	return m.cluster.takeAlarms(disarm), nil
}

// EtcdDefragment has nothing to tidy up.
func (s *machined) EtcdDefragment(context.Context, *emptypb.Empty) (*machineapi.EtcdDefragmentResponse, error) {
	if err := s.onlyControlPlane("etcd defragment"); err != nil {
		return nil, err
	}

	if _, err := s.node.localEtcd(); err != nil {
		return nil, fmt.Errorf("failed to defragment etcd: %w", err)
	}

	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}
