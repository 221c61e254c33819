package talosapi

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

// NeedsReboot asks a node whether it takes a configuration only with a reboot. Nothing is applied. The error is a
// RejectedError where the node does not take the configuration at all. From Talos 1.14 on, nodes take all without, and
// do not say what waits for a reboot: impact.WaitsForReboot does.
func NeedsReboot(ctx context.Context, t Target, c Credentials, configuration []byte) (bool, error) {
	var reboots bool

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		reply, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_AUTO, DryRun: true,
		})
		if err != nil {
			return err
		}

		for _, m := range reply.GetMessages() {
			reboots = reboots || m.GetMode() == machineapi.ApplyConfigurationRequest_REBOOT
		}

		return nil
	})
	switch client.StatusCode(err) {
	case codes.OK:
		return reboots, nil
	case codes.InvalidArgument, codes.Unknown:
		// Talos says InvalidArgument of what it validates, and nothing in particular of what it cannot read.
		return false, RejectedError{brief(err)}
	default:
		return false, fmt.Errorf("%s does not check the configuration: %s", t.Name, brief(err)) // its words are enough
	}
}

// ApplyAndReboot gives a node a configuration and has it reboot. The request is accepted when it returns, not done.
// From Talos 1.14 on that takes two requests. Between them the configuration is staged, not active, so that a run which
// comes to an end there finds the change again.
func ApplyAndReboot(ctx context.Context, t Target, c Credentials, configuration []byte) error {
	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		_, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_REBOOT, // before Talos 1.14
		})
		if client.StatusCode(err) != codes.Unimplemented {
			return err
		}

		if _, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_STAGED,
		}); err != nil {
			return err
		}

		return api.Reboot(ctx)
	})

	return notTaken(t.Name, err)
}

// ApplyStaged gives a node a configuration for its next boot.
func ApplyStaged(ctx context.Context, t Target, c Credentials, configuration []byte) error {
	return apply(ctx, t, c, configuration, machineapi.ApplyConfigurationRequest_STAGED)
}

// ApplyLive gives a node a configuration that it takes without a reboot, or not at all.
func ApplyLive(ctx context.Context, t Target, c Credentials, configuration []byte) error {
	return apply(ctx, t, c, configuration, machineapi.ApplyConfigurationRequest_NO_REBOOT)
}

func apply(ctx context.Context, t Target, c Credentials, configuration []byte,
	mode machineapi.ApplyConfigurationRequest_Mode,
) error {
	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		_, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: mode,
		})

		return err
	})

	return notTaken(t.Name, err)
}
