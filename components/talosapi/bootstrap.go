package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/components/wait"
)

// etcdWaits is the state of Talos' etcd service while it waits for a bootstrap or for a cluster to join, and for a
// while whenever it starts.
const etcdWaits = "Preparing"

// EtcdData says whether a control plane holds data of etcd.
type EtcdData int

// EtcdUnknown is said of a control plane that does not answer, or that is between two states. EtcdUnconfigured is a
// machine that waits for its first configuration. EtcdEmpty is a control plane that runs with its configuration and
// waits for etcd, with no member on its disk. EtcdHeld is one whose member runs, or is on its disk.
const (
	EtcdUnknown EtcdData = iota
	EtcdUnconfigured
	EtcdEmpty
	EtcdHeld
)

// EtcdReport is what the control planes say of their etcd, in the order in which they were asked.
type EtcdReport []struct {
	Name string
	Data EtcdData
	// Missing is what is waited for until it says one of the last two.
	Missing string
}

// Any says whether one of the control planes has said one of these.
func (r EtcdReport) Any(data ...EtcdData) bool { return r.count(data) > 0 }

// All says whether each of the control planes has said one of these.
func (r EtcdReport) All(data ...EtcdData) bool { return r.count(data) == len(r) }

func (r EtcdReport) count(data []EtcdData) (n int) {
	for _, one := range r {
		if slices.Contains(data, one.Data) {
			n++
		}
	}

	return n
}

// Missing is what has to be waited for until all have said something.
func (r EtcdReport) Missing() string {
	var missing []string

	for _, one := range r {
		if one.Missing != "" {
			missing = append(missing, one.Missing)
		}
	}

	return strings.Join(missing, "; ")
}

// AskEtcd asks each of the control planes for its own etcd.
func AskEtcd(ctx context.Context, controlPlanes []Target, c Credentials) EtcdReport {
	report := make(EtcdReport, len(controlPlanes))

	var asked sync.WaitGroup

	for i, t := range controlPlanes {
		asked.Go(func() {
			report[i].Name = t.Name

			err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
				report[i].Data, report[i].Missing = etcdData(ctx, t, api)

				return nil
			})

			switch {
			case err != nil:
				report[i].Missing = err.Error()
			case report[i].Data == EtcdUnknown && Unconfigured(ctx, t):
				report[i].Data = EtcdUnconfigured
			}
		})
	}

	asked.Wait()

	return report
}

// etcdData asks one control plane. The state of the service alone proves nothing: a member that starts is in the state
// of one that waits.
func etcdData(ctx context.Context, t Target, api *client.Client) (data EtcdData, missing string) {
	found, err := services(ctx, api)
	if err != nil {
		return EtcdUnknown, fmt.Sprintf("%s to run with its configuration (%s)", t.Name, brief(err))
	}

	switch etcd := found["etcd"]; etcd.state {
	case "Running":
		return EtcdHeld, ""
	case etcdWaits:
	default:
		return EtcdUnknown, fmt.Sprintf("etcd of %s (%s)", t.Name, orNot(etcd.state))
	}

	// Only now is the disk sure to be mounted.
	empty, err := emptyDirectory(ctx, api, constants.EtcdDataPath)

	switch {
	case err != nil:
		return EtcdUnknown, fmt.Sprintf("%s to show what etcd has on its disk (%s)", t.Name, brief(err))
	case empty:
		return EtcdEmpty, ""
	default:
		return EtcdHeld, ""
	}
}

// emptyDirectory says whether a directory of the node holds nothing. One that cannot be listed is not known to be
// empty.
func emptyDirectory(ctx context.Context, api *client.Client, path string) (bool, error) {
	entries, err := api.LS(ctx, &machineapi.ListRequest{Root: path})
	if err != nil {
		return false, err
	}

	listed := false

	for {
		entry, err := entries.Recv()

		switch {
		case errors.Is(err, io.EOF) && listed:
			return true, nil
		case err != nil:
			return false, err
		case entry.GetError() != "":
			return false, errors.New(entry.GetError())
		case entry.GetName() == path:
			listed = true // the directory itself
		default:
			return false, nil
		}
	}
}

// Bootstrap makes the first of the control planes start a cluster, unless one of them holds data of etcd: that is proof
// that the bootstrap has happened, even if the state does not know. Every control plane has to say that it holds none:
// a cluster must not be started next to one that is only out of sight. A reply that is lost is no failure: the next
// look shows what became of the request. With a recovery, the cluster begins with what a snapshot holds.
func Bootstrap(ctx context.Context, controlPlanes []Target, c Credentials, from *Recovery, bound time.Duration,
	progress wait.Reporter,
) error {
	nodes, err := open(ctx, controlPlanes[:1], c)
	if err != nil {
		return err
	}
	defer nodes.close()

	// What begins with a snapshot takes longer than a question.
	parent := ctx

	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		report := AskEtcd(ctx, controlPlanes, c)

		switch {
		case report.Any(EtcdHeld):
			return nil
		case !report.All(EtcdEmpty):
			return wait.For("%s", report.Missing())
		default:
			return nodes[0].bootstrap(parent, from)
		}
	})
}

// Founded says whether there is a cluster: not where every control plane says that it holds no data of etcd. One that
// does not answer may be part of one, and so may those that are not known.
func Founded(ctx context.Context, controlPlanes []Target, c Credentials) bool {
	return len(controlPlanes) == 0 || !AskEtcd(ctx, controlPlanes, c).All(EtcdEmpty, EtcdUnconfigured)
}

// bootstrap asks the node to start a cluster.
func (p *probe) bootstrap(ctx context.Context, from *Recovery) error {
	request := &machineapi.BootstrapRequest{}

	if from != nil {
		switch err := from.send(ctx, p.api); status.Code(err) {
		case codes.OK:
		case codes.FailedPrecondition, codes.Unavailable:
			return wait.For("%s to take the snapshot of etcd (%s)", p.target.Name, brief(err))
		default:
			return fmt.Errorf("%s does not take the snapshot of etcd: %s", p.target.Name, brief(err)) // its words are enough
		}

		request.RecoverEtcd, request.RecoverSkipHashCheck = true, from.Raw
	}

	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	err := p.api.Bootstrap(ctx, request)

	switch status.Code(err) {
	case codes.OK, codes.AlreadyExists:
		return nil
	case codes.FailedPrecondition, codes.Unavailable, codes.DeadlineExceeded:
		return wait.For("%s to accept the bootstrap (%s)", p.target.Name, brief(err))
	default:
		return fmt.Errorf("%s refuses the bootstrap: %s", p.target.Name, brief(err))
	}
}

// OneEtcd checks that the members of etcd that run on the control planes are of one cluster: each is in the list of
// every other. Two clusters of one name, certificate authority and address can have the same ids, but not the same
// lists. Who does not answer, or cannot list the members, proves nothing.
func OneEtcd(ctx context.Context, controlPlanes []Target, c Credentials) error {
	type view struct {
		name string
		id   uint64
		ids  []uint64 // of all members, by this one's word
	}

	views := make([]view, len(controlPlanes))

	var asked sync.WaitGroup

	for i, t := range controlPlanes {
		asked.Go(func() {
			var v view

			err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
				members, err := api.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})
				if err != nil {
					return err
				}

				for _, message := range members.GetMessages() {
					for _, m := range message.GetMembers() {
						v.ids = append(v.ids, m.GetId())
					}
				}

				own, err := api.EtcdStatus(ctx)

				for _, message := range own.GetMessages() {
					v.name, v.id = t.Name, message.GetMemberStatus().GetMemberId()
				}

				return err
			})
			if err == nil {
				views[i] = v
			}
		})
	}

	asked.Wait()

	for i, a := range views {
		for _, b := range views[:i] {
			if a.id == 0 || b.id == 0 || slices.Contains(a.ids, b.id) && slices.Contains(b.ids, a.id) {
				continue
			}

			return fmt.Errorf("%s and %s run members of two different etcd clusters", b.name, a.name)
		}
	}

	return nil
}
