package talos

import (
	"context"
	"fmt"
	"strings"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// maintain serves the maintenance API until a configuration has been accepted. Without one it returns what ends the
// boot.
func (n *node) maintain() (config.Provider, next) {
	ctx, stop := context.WithCancel(n.ctx)
	defer stop()

	conf, err := n.maintenanceTLS()
	if err != nil {
		n.sys.log("maintenance service: %v", err)

		return nil, standStill
	}

	front := newFront(n, conf, func(s *grpc.Server) {
		machineapi.RegisterMachineServiceServer(s, &maintenance{node: n})
		storageapi.RegisterStorageServiceServer(s, &storaged{node: n})
		cosiv1alpha1.RegisterStateServer(s, server.NewState(n.guarded()))
	})
	front.maintenance = true

	n.background(func(context.Context) { n.serve(ctx, apidPort, front.listen) })
	defer front.close()

	select {
	case cfg := <-n.applied:
		stop()

		// the service ends first: the reply has gone out when it has
		front.drain()

		if !n.wait("apply", n.fw.opts.Latencies.Apply) {
			return nil, powerCut
		}

		return cfg, 0
	case <-n.ctx.Done():
		return nil, powerCut
	case <-n.sys.acpi:
		n.end(command{sequence: "shutdown", then: powerOff})

		return nil, powerOff
	}
}

// maintenance is the machine API of a node without configuration (Talos: internal/app/maintenance/server.go). What it
// does not implement here it does not implement there either.
type maintenance struct {
	machineapi.UnimplementedMachineServiceServer

	node *node
}

func (s *maintenance) ApplyConfiguration(ctx context.Context,
	in *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	switch in.GetMode() {
	case machineapi.ApplyConfigurationRequest_TRY, machineapi.ApplyConfigurationRequest_REBOOT,
		machineapi.ApplyConfigurationRequest_AUTO:
	default:
		return nil, status.Errorf(codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode",
			strings.ReplaceAll(strings.ToLower(in.GetMode().String()), "_", "-"))
	}

	cfg, warnings, loadErr, err := s.node.validate(in.GetData(), s.node.mode(false))

	switch {
	case loadErr != nil:
		// a plain error on purpose: a real node reports what it cannot parse as Unknown, not as InvalidArgument
		return nil, fmt.Errorf("failed to parse config: %w", loadErr)
	case err != nil:
		return nil, status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
	}

	reply := &machineapi.ApplyConfiguration{Warnings: warnings}

	if in.GetDryRun() {
		reply.ModeDetails = "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."
	} else {
		select {
		case s.node.applied <- cfg:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{reply}}, nil
}

// errMaintenance is what calls get that need the admin role, which requires a certificate.
var errMaintenance = status.Error(codes.Unimplemented, "API is not implemented in maintenance mode")

func (s *maintenance) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return nil, errMaintenance
}

func (s *maintenance) Upgrade(context.Context, *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	return nil, errMaintenance
}

func (s *maintenance) Reset(context.Context, *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	return nil, errMaintenance
}

func (s *maintenance) MetaWrite(context.Context, *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse, error) {
	return nil, errMaintenance
}

func (s *maintenance) MetaDelete(context.Context, *machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse,
	error,
) {
	return nil, errMaintenance
}

func (s *maintenance) GenerateClientConfiguration(context.Context,
	*machineapi.GenerateClientConfigurationRequest,
) (*machineapi.GenerateClientConfigurationResponse, error) {
	return nil, status.Error(codes.Unimplemented,
		"client configuration (talosconfig) can't be generated in the maintenance mode")
}
