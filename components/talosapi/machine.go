package talosapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"

	"talos-proxmox/components/wait"
)

// Answers says why the node does not answer to the cluster's credentials, nil when it does.
func Answers(ctx context.Context, t Target, c Credentials) error {
	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		_, err := api.Version(ctx)

		return err
	})
	if err != nil {
		return errors.New(brief(err))
	}

	return nil
}

// Unconfigured tells whether a machine waits at the address to be configured: it belongs to no cluster.
func Unconfigured(ctx context.Context, t Target) bool {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	api, err := client.New(ctx, client.WithEndpoints(t.Address),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true})) //nolint:gosec // it has no identity yet
	if err != nil {
		return false
	}
	defer api.Close() // nothing is left to be written

	_, err = api.Version(ctx)

	// This, like most, is for who has credentials, and there are none here. A node that has an identity ends the
	// connection.
	return err == nil || client.StatusCode(err) == codes.Unimplemented
}

// Kubeconfig is an administrator's, made by a control plane. It names the cluster's endpoint.
func Kubeconfig(ctx context.Context, t Target, c Credentials) ([]byte, error) {
	var raw []byte

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		var err error
		raw, err = api.Kubeconfig(ctx)

		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s does not return a kubeconfig: %s", t.Name, brief(err)) // its words are enough
	}

	return raw, nil
}

// Reset makes the node forget the cluster and switch off: whatever starts the machine again, it does not come back as a
// member. The request is accepted when it returns, not done.
func Reset(ctx context.Context, t Target, c Credentials) error {
	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		return api.ResetGeneric(ctx, &machineapi.ResetRequest{
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: constants.StatePartitionLabel, Wipe: true}, {Label: constants.EphemeralPartitionLabel, Wipe: true},
			},
		})
	})
	if err != nil {
		return errors.New(brief(err))
	}

	return nil
}
