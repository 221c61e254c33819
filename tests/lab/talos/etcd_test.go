package talos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"talos-proxmox/tests/lab/talos"
)

// etcdMembers are the members as a node lists them.
func (c *cluster) etcdMembers(v *vm) []*machineapi.EtcdMember {
	c.Helper()

	reply, err := c.client(v).EtcdMemberList(c.Context(), &machineapi.EtcdMemberListRequest{})
	require.NoError(c, err)

	return reply.GetMessages()[0].GetMembers()
}

func (c *cluster) memberIDs(v *vm) map[string]uint64 {
	c.Helper()

	ids := map[string]uint64{}
	for _, m := range c.etcdMembers(v) {
		ids[m.GetHostname()] = m.GetId()
	}

	return ids
}

// grow adds control planes until there are n.
func (c *cluster) grow(cps []*vm, n int) []*vm {
	c.Helper()

	for i := len(cps); i < n; i++ {
		v := c.machine(byte(11+i), template()).on()
		c.apply(v, c.config(configmachine.TypeControlPlane, fmt.Sprintf("cp-%d", i+1)))
		cps = append(cps, v)
	}

	for _, v := range cps {
		v.ready()
	}

	return cps
}

func (c *cluster) leave(v *vm) error { return c.leaveWithin(v, 20*time.Second) }

func (c *cluster) leaveWithin(v *vm, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()

	return c.client(v).EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{})
}

// Members come and go one at a time, and at no instant is the quorum lost.
func TestGrowAndShrink(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	began := time.Now()
	cps = c.grow(cps, 5)

	require.Len(t, c.etcdMembers(cps[4]), 5)

	for _, m := range c.etcdMembers(cps[0]) {
		require.False(t, m.GetIsLearner())
		require.Len(t, m.GetClientUrls(), 1)
	}

	for _, v := range cps[3:] {
		require.NoError(t, c.leave(v))

		_, state := service(t, c.client(v), "etcd")
		require.Equal(t, "Finished", state)
	}

	// who has left still answers, from the others' etcd
	require.Equal(t, c.memberIDs(cps[0]), c.memberIDs(cps[4]))

	var causes []string
	for _, q := range r.fw.Quorum(began) {
		causes = append(causes, fmt.Sprintf("%s: %d of %d", q.Cause, q.Healthy, q.Voters))
	}

	order := [2]int{4, 5}
	if causes[0] != "cp-4 joins as a learner: 3 of 3" {
		order = [2]int{5, 4}
	}

	require.Equal(t, []string{
		fmt.Sprintf("cp-%d joins as a learner: 3 of 3", order[0]), fmt.Sprintf("vm-%d: etcd starts: 3 of 3", 10+order[0]),
		fmt.Sprintf("vm-%d: etcd gets its vote: 4 of 4", 10+order[0]),
		fmt.Sprintf("cp-%d joins as a learner: 4 of 4", order[1]), fmt.Sprintf("vm-%d: etcd starts: 4 of 4", 10+order[1]),
		fmt.Sprintf("vm-%d: etcd gets its vote: 5 of 5", 10+order[1]),
		"vm-14: leaves etcd: 4 of 4", "vm-15: leaves etcd: 3 of 3",
	}, causes)

	lowest, found := r.fw.LowestQuorum(began)
	require.True(t, found)
	require.Equal(t, 1, lowest.Margin())

	// a member that left joins again when its machine restarts
	before := cps[4].bootID(c)
	require.NoError(t, c.client(cps[4]).Reboot(t.Context()))
	cps[4].rebooted(c, before)
	cps[4].ready()
	require.Len(t, c.etcdMembers(cps[0]), 4)
}

func service(t *testing.T, api *client.Client, id string) (healthy bool, state string) {
	t.Helper()

	info, err := api.ServiceInfo(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, info, 1)

	return info[0].Service.GetHealth().GetHealthy(), info[0].Service.GetState()
}

// etcd refuses what would cost the quorum, in its own words.
func TestMembersThatMayNotGo(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	ids := c.memberIDs(cps[0])
	api := c.client(cps[0])

	remove := func(id uint64) error {
		return api.EtcdRemoveMemberByID(t.Context(), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	}

	err := remove(7)
	require.Equal(t, codes.NotFound, client.StatusCode(err))
	require.ErrorContains(t, err, "failed to remove member 7: etcdserver: member not found")

	began := time.Now()
	cps[2].off()

	lowest, _ := r.fw.LowestQuorum(began)
	require.Equal(t, 0, lowest.Margin())
	require.Equal(t, "vm-13: etcd stops (power cut)", lowest.Cause)

	// with one of three down no running member may leave
	err = remove(ids["cp-2"])
	require.Equal(t, codes.Unknown, client.StatusCode(err))
	require.ErrorContains(t, err, fmt.Sprintf(
		"failed to remove member: failed to remove member %d: etcdserver: unhealthy cluster", ids["cp-2"]))

	err = c.leaveWithin(cps[1], time.Second)
	require.Equal(t, codes.DeadlineExceeded, client.StatusCode(err), "it asks again for minutes")

	// nor may anybody come
	four := r.machine(14, template()).on()
	c.apply(four, c.config(configmachine.TypeControlPlane, "cp-4"))
	r.until("cp-4 is refused", func(context.Context) error {
		return r.saw(
			"error adding member: etcdserver: unhealthy cluster")
	})

	// who is down may, and then the others may come
	require.NoError(t, remove(ids["cp-3"]))
	four.ready()
	require.Len(t, c.etcdMembers(cps[0]), 3)

	// the machine that comes back is no member any more
	cps[2].on()
	r.until("cp-3 is told", func(context.Context) error { return r.saw("permanently removed") })

	require.NoError(t, c.leave(four))
	require.NoError(t, c.leave(cps[1]))
	require.ErrorContains(t, c.leave(cps[0]), "etcdserver: re-configuration failed due to not enough started members")
}

// saw looks for a line on the consoles.
func (r *harness) saw(line string) error {
	if said := r.said(); !strings.Contains(said, line) {
		return errors.New(said)
	}

	return nil
}

func TestRemovedWhileItRuns(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)

	require.NoError(t, c.client(cps[0]).EtcdRemoveMemberByID(t.Context(),
		&machineapi.EtcdRemoveMemberByIDRequest{MemberId: c.memberIDs(cps[0])["cp-3"]}))
	r.until("its etcd ends", func(context.Context) error {
		if _, state := service(t, c.client(cps[2]), "etcd"); state != "Waiting" {
			return errors.New(state)
		}

		return nil
	})
}

func TestForfeitLeadership(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	names := map[uint64]string{}

	for name, id := range c.memberIDs(cps[0]) {
		names[id] = name
	}

	leader := func(v *vm) string {
		reply, err := c.client(v).EtcdStatus(t.Context())
		require.NoError(t, err)
		require.Empty(t, reply.GetMessages()[0].GetMemberStatus().GetErrors())

		return names[reply.GetMessages()[0].GetMemberStatus().GetLeader()]
	}

	first := leader(cps[0])

	for i, v := range cps {
		reply, err := c.client(v).EtcdForfeitLeadership(t.Context(), &machineapi.EtcdForfeitLeadershipRequest{})
		require.NoError(t, err)

		if now := reply.GetMessages()[0].GetMember(); fmt.Sprintf("cp-%d", i+1) == first {
			require.Equal(t, leader(cps[0]), now)
			require.NotEqual(t, first, now)

			break
		}

		require.Empty(t, reply.GetMessages()[0].GetMember())
	}

	require.NotEqual(t, first, leader(cps[0]))

	alone, cp := one(newLonelyRig(t))
	_, err := alone.client(cp).EtcdForfeitLeadership(t.Context(), &machineapi.EtcdForfeitLeadershipRequest{})
	require.ErrorContains(t, err, "cannot forfeit leadership, only one member")
}

// A member that is cut off runs, and is of no use.
func TestMemberCutOff(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	began := time.Now()

	r.fw.Break("vm-12", talos.EtcdCutOff)

	reply, err := c.client(cps[1]).EtcdStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"etcdserver: no leader"}, reply.GetMessages()[0].GetMemberStatus().GetErrors())

	healthy, state := service(t, c.client(cps[1]), "etcd")
	require.False(t, healthy)
	require.Equal(t, "Running", state)

	_, err = c.client(cps[1]).EtcdMemberList(t.Context(), &machineapi.EtcdMemberListRequest{QueryLocal: true})
	require.ErrorContains(t, err, "no leader")
	require.Len(t, c.etcdMembers(cps[1]), 3, "others answer")

	_, err = c.kubernetesAt(cps[0], cps[1].addr()).CoreV1().Nodes().List(t.Context(), listOptions{})
	require.Error(t, err)
	_, err = c.kubernetesAt(cps[0], cps[0].addr()).CoreV1().Nodes().List(t.Context(), listOptions{})
	require.NoError(t, err)

	r.fw.Break("vm-13", talos.EtcdCutOff)

	lowest, _ := r.fw.LowestQuorum(began)
	require.Equal(t, -1, lowest.Margin())
	require.Equal(t, "vm-13: etcd is cut off", lowest.Cause)

	_, err = c.members(cps[0])
	require.ErrorContains(t, err, "no leader")

	r.fw.Mend("vm-12", talos.EtcdCutOff)
	r.fw.Mend("vm-13", talos.EtcdCutOff)

	for _, v := range cps {
		v.ready()
	}
}

// A learner that lags has no vote, lets no other learner in, and does not serve.
func TestLearner(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)

	for _, name := range []string{"vm-14", "vm-15"} {
		r.fw.Break(name, talos.EtcdLags)
	}

	four, five := r.machine(14, template()).on(), r.machine(15, template()).on()
	c.apply(four, c.config(configmachine.TypeControlPlane, "cp-4"))
	r.until("a learner runs", func(context.Context) error {
		for _, m := range c.etcdMembers(cps[0]) {
			if m.GetHostname() == "cp-4" && m.GetIsLearner() {
				return nil
			}
		}

		return errors.New("there is none")
	})

	healthy, state := service(t, c.client(four), "etcd")
	require.False(t, healthy)
	require.Equal(t, "Running", state)

	c.apply(five, c.config(configmachine.TypeControlPlane, "cp-5"))
	r.until("cp-5 is refused", func(context.Context) error {
		return r.saw("error adding member: etcdserver: too many learner members in cluster")
	})
	require.Nil(t, c.serverCertificate(four.addr()+":6443"))

	r.fw.Mend("vm-14", talos.EtcdLags)
	r.fw.Mend("vm-15", talos.EtcdLags)
	four.ready()
	five.ready()
	require.Len(t, c.etcdMembers(four), 5)
}

func TestAlarms(t *testing.T) {
	r := newHarness(t)
	c, cps := three(r, "", nil)
	ids := c.memberIDs(cps[0])

	r.fw.Break("vm-12", talos.EtcdNoSpace)
	r.fw.Break("vm-13", talos.EtcdInconsistent)

	want := []*machineapi.EtcdMemberAlarm{
		{MemberId: ids["cp-2"], Alarm: machineapi.EtcdMemberAlarm_NOSPACE},
		{MemberId: ids["cp-3"], Alarm: machineapi.EtcdMemberAlarm_CORRUPT},
	}

	list, err := c.client(cps[0]).EtcdAlarmList(t.Context())
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(list.GetMessages()[0].GetMemberAlarms()))

	disarmed, err := c.client(cps[2]).EtcdAlarmDisarm(t.Context())
	require.NoError(t, err)
	require.Len(t, disarmed.GetMessages()[0].GetMemberAlarms(), 2)

	list, err = c.client(cps[0]).EtcdAlarmList(t.Context())
	require.NoError(t, err)
	require.Empty(t, list.GetMessages()[0].GetMemberAlarms())

	_, err = c.client(cps[0]).EtcdDefragment(t.Context())
	require.NoError(t, err)
}
