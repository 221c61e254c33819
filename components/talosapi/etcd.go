package talosapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/components/etcd"
)

// ErrNoEtcd means that no control plane told the members of etcd.
var ErrNoEtcd = errors.New("etcd does not answer")

// EtcdMembers are the members of etcd as the first of the control planes lists them that answers, and how each member
// is by its own word.
func EtcdMembers(ctx context.Context, controlPlanes []Target, c Credentials) ([]etcd.Member, error) {
	members, err := ListEtcdMembers(ctx, controlPlanes, c)
	if err != nil {
		return nil, err
	}

	var asked sync.WaitGroup
	for i := range members {
		asked.Go(func() { members[i].Problem = memberProblem(ctx, members[i], c) })
	}

	asked.Wait()

	return members, nil
}

// ListEtcdMembers are the members of etcd as the first of the control planes lists them that answers. The members are
// not asked.
func ListEtcdMembers(ctx context.Context, controlPlanes []Target, c Credentials) ([]etcd.Member, error) {
	var messages []string

	for _, t := range controlPlanes {
		members, err := listed(ctx, t, c)
		if err != nil {
			messages = append(messages, fmt.Sprintf("%s: %s", t.Name, brief(err)))

			continue
		}

		return members, nil
	}

	return nil, fmt.Errorf("%w (%s)", ErrNoEtcd, strings.Join(messages, "; "))
}

func listed(ctx context.Context, t Target, c Credentials) ([]etcd.Member, error) {
	var members []etcd.Member

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		reply, err := api.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			for _, m := range message.GetMembers() {
				members = append(members, etcd.Member{
					ID: m.GetId(), Name: m.GetHostname(), Address: hostOf(m.GetPeerUrls()),
					Learner: m.GetIsLearner(),
				})
			}
		}

		return nil
	})

	return members, err
}

func hostOf(urls []string) string {
	if len(urls) == 0 {
		return ""
	}

	u, err := url.Parse(urls[0])
	if err != nil {
		return ""
	}

	return u.Hostname()
}

// memberProblem is what is wrong with a member; empty when nothing is.
func memberProblem(ctx context.Context, m etcd.Member, c Credentials) string {
	problem := ""

	err := with(ctx, Target{Name: m.String(), Address: m.Address}, c, func(ctx context.Context, api *client.Client) error {
		reply, err := api.EtcdStatus(ctx)
		if err != nil {
			return err
		}

		for _, message := range reply.GetMessages() {
			s := message.GetMemberStatus()

			switch errs := own(s.GetErrors(), m.ID); {
			case s.GetMemberId() != m.ID:
				problem = "it runs a member of another etcd cluster"
			case s.GetLeader() == 0: // whatever alarms it tells of
				problem = "it has no leader"
			case len(errs) > 0:
				problem = strings.Join(errs, ", ")
			}
		}

		return nil
	})
	if err != nil {
		return brief(err)
	}

	return problem
}

// alarmed is how etcd writes the alarm of a member, which has one space or two since etcd 3.7.
var alarmed = regexp.MustCompile(`^memberID:(\d+) alarm:`)

// own are the errors of a member by which it is unhealthy itself: every member tells the alarms of all of them.
func own(all []string, id uint64) []string {
	var mine []string

	for _, e := range all {
		e = strings.Join(strings.Fields(e), " ")
		if alarm := alarmed.FindStringSubmatch(e); alarm == nil || alarm[1] == strconv.FormatUint(id, 10) {
			mine = append(mine, e)
		}
	}

	return mine
}

// EndAlarms ends the alarms of a member that etcd has removed, by the first of the control planes that answers. Etcd
// keeps an alarm beyond its member, and takes no writes while there is one. It only ends all alarms at once: where
// others have one too, that is left to the operator.
func EndAlarms(ctx context.Context, controlPlanes []Target, c Credentials, removed etcd.Member) error {
	var errs []error

	for _, t := range controlPlanes {
		err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
			reply, err := api.EtcdAlarmList(ctx)
			if err != nil {
				return err
			}

			var its, others bool

			for _, message := range reply.GetMessages() {
				for _, a := range message.GetMemberAlarms() {
					if a.GetMemberId() == removed.ID {
						its = true
					} else {
						others = true
					}
				}
			}

			if !its || others {
				return nil
			}

			_, err = api.EtcdAlarmDisarm(ctx)

			return err
		})
		if err == nil {
			return nil
		}

		errs = append(errs, fmt.Errorf("%s: %s", t.Name, brief(err))) // its words are enough
	}

	return fmt.Errorf("could not determine whether etcd still has alarms of %s: %w", removed, errors.Join(errs...))
}

// LeaveEtcd takes the node's own member out of etcd, after it has handed the leadership over. The context bounds it:
// Talos tries for five minutes.
func LeaveEtcd(ctx context.Context, t Target, c Credentials) error {
	api, err := dial(ctx, t, c)
	if err != nil {
		return err
	}
	defer api.Close() // nothing is left to be written

	if err := checkMachine(ctx, api, t); err != nil {
		return fmt.Errorf("%s does not leave etcd: %s", t.Name, brief(err)) // its words are enough
	}

	if _, err := api.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{}); err != nil {
		return fmt.Errorf("%s does not transfer the leadership of etcd: %s", t.Name, brief(err)) // its words are enough
	}

	if err := api.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{}); err != nil {
		return fmt.Errorf("%s does not leave etcd: %s", t.Name, brief(err)) // its words are enough
	}

	return nil
}

// RemoveEtcdMember takes a member out of etcd that cannot leave by itself. One that is not there is no error.
func RemoveEtcdMember(ctx context.Context, via Target, c Credentials, m etcd.Member) error {
	err := with(ctx, via, c, func(ctx context.Context, api *client.Client) error {
		return api.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: m.ID})
	})
	if err == nil || status.Code(err) == codes.NotFound {
		return nil
	}

	return fmt.Errorf("%s does not remove the etcd member %s: %s", via.Name, m, brief(err)) // its words are enough
}
