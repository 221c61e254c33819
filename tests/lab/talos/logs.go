package talos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Dmesg has a few lines, and stays open when it is followed.
func (s *machined) Dmesg(in *machineapi.DmesgRequest, stream machineapi.MachineService_DmesgServer) error {
	n := s.node

	if !in.GetTail() {
		for i, line := range []string{
			"Linux version 6.18.8-talos (lab)", "Command line: " + strings.Join(n.image.cmdline(), " "),
			"[talos] Talos " + n.image.Version + " on " + n.hw.Name,
		} {
			text := fmt.Sprintf("kern:    info: [%s]: %s\n",
				n.started.Add(time.Duration(i)*time.Millisecond).Format(time.RFC3339Nano), line)
			if err := stream.Send(&common.Data{Bytes: []byte(text)}); err != nil {
				return err
			}
		}
	}

	return s.follow(stream.Context(), in.GetFollow())
}

// Logs has what a service's events tell.
func (s *machined) Logs(in *machineapi.LogsRequest, stream machineapi.MachineService_LogsServer) error {
	for _, info := range s.node.services.list() {
		if info.id != in.GetId() {
			continue
		}

		for _, e := range info.events {
			line := fmt.Sprintf("%s [%s] %s\n", e.GetTs().AsTime().Format(time.RFC3339), e.GetState(), e.GetMsg())
			if err := stream.Send(&common.Data{Bytes: []byte(line)}); err != nil {
				return err
			}
		}

		return s.follow(stream.Context(), in.GetFollow())
	}

	return status.Errorf(codes.NotFound, "log %q was not registered", in.GetId())
}

// follow keeps a stream open until the client or the node goes.
func (s *machined) follow(ctx context.Context, follow bool) error {
	if !follow {
		return nil
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.node.closing:
		return nil
	case <-s.node.ctx.Done():
		return nil
	}
}

// Mounts has the partitions.
func (s *machined) Mounts(context.Context, *emptypb.Empty) (*machineapi.MountsResponse, error) {
	list := &machineapi.Mounts{}

	if s.node.disk != nil {
		size := s.node.ephemeralSize()
		list.Stats = append(list.Stats, &machineapi.MountStat{
			Filesystem: "/dev/EPHEMERAL", Size: size,
			Available: size * 9 / 10, MountedOn: "/var",
		})
	}

	return &machineapi.MountsResponse{Messages: []*machineapi.Mounts{list}}, nil
}
