package talos

import (
	"context"
	"errors"
	"fmt"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/tests/lab/etcdrules"
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

	m, err := n.foundEtcd(in.GetRecoverEtcd(), in.GetRecoverSkipHashCheck())
	if err != nil {
		// who asked has his answer already: it is the service that fails
		n.sys.log("etcd: %v", err)
		n.services.set("etcd", stateFailed, "Failed to run pre stage: "+err.Error(), nil)

		return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
	}

	if !n.setMembership(m) {
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	select {
	case n.starting <- struct{}{}:
	default:
	}

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

// foundEtcd begins a cluster of etcd, with what a snapshot holds or with nothing.
func (n *node) foundEtcd(recover, skipHash bool) (*membership, error) {
	if n.fw.opts.Upstream != nil {
		return n.foundRealEtcd(recover, skipHash)
	}

	stored := kube.NewCluster()

	if recover {
		var err error
		if stored, err = n.recovered(skipHash); err != nil {
			return nil, err
		}
	}

	host, _ := n.fqdn()
	model, id := newEtcd(n.fw.quorum, stored, host, n.address())

	return &membership{cluster: newCluster(model, n.etcdCA(), stored), id: id}, nil
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

	members, err := c.list()
	if err != nil {
		return nil, err
	}

	out := &machineapi.EtcdMembers{}

	for _, m := range members {
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
	for _, m := range c.known() {
		if m.id == id {
			return m.name
		}
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

		if !errors.Is(err, etcdrules.ErrUnhealthy) || time.Since(began) > leaveTimeout {
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

	st, err := m.cluster.status(m.id)
	if err != nil {
		return nil, fmt.Errorf("failed to query etcd status: %w", err)
	}

	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: st}}}, nil
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

	alarms, err := m.cluster.takeAlarms(m.id, disarm)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", failed, err)
	}

	return alarms, nil
}

// EtcdDefragment tidies the node's own member up.
func (s *machined) EtcdDefragment(context.Context, *emptypb.Empty) (*machineapi.EtcdDefragmentResponse, error) {
	if err := s.onlyControlPlane("etcd defragment"); err != nil {
		return nil, err
	}

	m, err := s.node.localEtcd()
	if err == nil {
		err = m.cluster.defragment(m.id)
	}

	if err != nil {
		return nil, fmt.Errorf("failed to defragment etcd: %w", err)
	}

	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}
