package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// EtcdSnapshot writes what the first of the control planes that answers has in its etcd. It needs no quorum: the member
// is asked for what it has itself. The bound is for the sending, of 8 GiB at most.
func EtcdSnapshot(ctx context.Context, controlPlanes []Target, c Credentials, bound time.Duration, to io.Writer) error {
	var all []error

	for _, t := range controlPlanes {
		sent, err := snapshot(ctx, t, c, bound, to)
		if err == nil {
			return nil
		}

		all = append(all, fmt.Errorf("%s does not return a snapshot of etcd: "+
			"%s", t.Name, brief(err))) // its words are enough

		if sent > 0 {
			break // what came so far is in the writer
		}
	}

	return errors.Join(all...)
}

func snapshot(ctx context.Context, t Target, c Credentials, bound time.Duration, to io.Writer) (int64, error) {
	// One that is down must not cost the bound of a transfer.
	if err := Answers(ctx, t, c); err != nil {
		return 0, err
	}

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	api, err := dial(ctx, t, c)
	if err != nil {
		return 0, err
	}
	defer api.Close() // nothing is left to be written

	from, err := api.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		return 0, err
	}
	defer from.Close() // read only

	return io.Copy(to, from)
}

// Recovery is what a new cluster begins with instead of an empty etcd.
type Recovery struct {
	// Open the snapshot, from its beginning.
	Open func() (io.ReadCloser, error)
	// Raw says that it was copied from a member's disk and has no hash, which etcd would look for.
	Raw bool
	// Bound is for its sending.
	Bound time.Duration
}

// send hands the snapshot to the node that is to be bootstrapped.
func (r *Recovery) send(ctx context.Context, api *client.Client) error {
	from, err := r.Open()
	if err != nil {
		return err
	}
	defer from.Close() // read only

	ctx, cancel := context.WithTimeout(ctx, r.Bound)
	defer cancel()

	_, err = api.EtcdRecover(ctx, from)

	return err
}
