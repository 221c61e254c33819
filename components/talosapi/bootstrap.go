package talosapi

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/components/wait"
)

// etcdWaits is the state of Talos' etcd service while it waits for a bootstrap, or for a cluster to join.
const etcdWaits = "Preparing"

// Bootstrap makes the first of the control planes start a cluster, unless there is one: a control plane whose etcd runs is
// proof that the bootstrap has happened, even if nobody remembers. It waits until every control plane answers, for a
// cluster must not be started beside one that is only out of sight. A reply that is lost is no failure: the next look
// shows what became of the request. With a recovery, the cluster begins with what a snapshot holds.
func Bootstrap(ctx context.Context, controlPlanes []Target, c Credentials, from *Recovery, bound time.Duration, say wait.Say) error {
	nodes, err := open(ctx, controlPlanes, c)
	if err != nil {
		return err
	}
	defer nodes.close()

	// What begins with a snapshot takes longer than a question.
	parent := ctx

	return wait.Until(ctx, bound, say, func(ctx context.Context) (string, error) {
		var exists atomic.Bool

		waiting := nodes.each(ctx, func(p *probe, ctx context.Context) string {
			found, err := services(ctx, p.api)
			if err != nil {
				return fmt.Sprintf("%s to run with its configuration (%s)", p.target.Name, brief(err))
			}

			switch etcd := found["etcd"]; etcd.state {
			case "Running":
				exists.Store(true)
			case etcdWaits:
			default:
				return fmt.Sprintf("etcd of %s (%s)", p.target.Name, orNot(etcd.state))
			}

			return ""
		})

		switch {
		case exists.Load():
			return "", nil
		case waiting != "":
			return waiting, nil
		default:
			return nodes[0].bootstrap(parent, from)
		}
	})
}

// Founded says whether there is a cluster: not where every control plane still waits to be configured, or for etcd to be started.
// One that does not answer may be part of one, and so may those that nobody knows.
func Founded(ctx context.Context, controlPlanes []Target, c Credentials) bool {
	if len(controlPlanes) == 0 {
		return true
	}

	for _, t := range controlPlanes {
		waits := false

		err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
			found, err := services(ctx, api)
			waits = found["etcd"].state == etcdWaits

			return err
		})

		if err != nil && !Unconfigured(ctx, t) || err == nil && !waits {
			return true
		}
	}

	return false
}

// bootstrap asks the node to start a cluster.
func (p *probe) bootstrap(ctx context.Context, from *Recovery) (waitingFor string, err error) {
	request := &machineapi.BootstrapRequest{}

	if from != nil {
		switch err := from.send(ctx, p.api); status.Code(err) {
		case codes.OK:
		case codes.FailedPrecondition, codes.Unavailable:
			return fmt.Sprintf("%s to take the snapshot of etcd (%s)", p.target.Name, brief(err)), nil
		default:
			return "", fmt.Errorf("%s does not take the snapshot of etcd: %s", p.target.Name, brief(err)) //nolint:errorlint // its words are enough
		}

		request.RecoverEtcd, request.RecoverSkipHashCheck = true, from.Raw
	}

	ctx, cancel := context.WithTimeout(ctx, wait.Ask)
	defer cancel()

	err = p.api.Bootstrap(ctx, request)

	switch status.Code(err) {
	case codes.OK, codes.AlreadyExists:
		return "", nil
	case codes.FailedPrecondition, codes.Unavailable, codes.DeadlineExceeded:
		return fmt.Sprintf("%s to accept the bootstrap (%s)", p.target.Name, brief(err)), nil
	default:
		return "", fmt.Errorf("%s refuses the bootstrap: %s", p.target.Name, brief(err))
	}
}
