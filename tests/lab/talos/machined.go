package talos

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	inspectapi "github.com/siderolabs/talos/pkg/machinery/api/inspect"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// machined is the machine API of a configured node. Methods that it lacks are refused and recorded by the front.
type machined struct {
	machineapi.UnimplementedMachineServiceServer
	inspectapi.UnimplementedInspectServiceServer

	node *node
}

// onlyControlPlane is the answer of workers to what only control planes do.
func (s *machined) onlyControlPlane(api string) error {
	if s.node.controlPlane() {
		return nil
	}

	return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", api)
}

// Version tells what runs.
func (s *machined) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	n := s.node

	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{
		Version: &machineapi.VersionInfo{
			Tag: n.image.Version, Sha: "lab", GoVersion: runtime.Version(), Os: "linux", Arch: "amd64",
		},
		Platform: &machineapi.PlatformInfo{Name: n.image.Platform, Mode: n.mode(true).name},
		Features: &machineapi.FeaturesInfo{Rbac: true},
	}}}, nil
}

// Hostname is the node's.
func (s *machined) Hostname(context.Context, *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	host, _ := s.node.fqdn()

	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: host}}}, nil
}

// Memory is what the hardware has, less what the firmware and the kernel keep.
func (s *machined) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	total := s.node.memory()

	return &machineapi.MemoryResponse{Messages: []*machineapi.Memory{{Meminfo: &machineapi.MemInfo{
		Memtotal: total, Memfree: total / 2, Memavailable: total * 7 / 10, Buffers: total / 100, Cached: total / 5,
		Slab: total / 50,
	}}}}, nil
}

// memory is what the kernel leaves of the machine's memory, KiB.
func (n *node) memory() uint64 { return uint64(n.hw.MemoryMiB) * 1024 * 97 / 100 }

// SystemStat has the boot time, and processors that do little.
func (s *machined) SystemStat(context.Context, *emptypb.Empty) (*machineapi.SystemStatResponse, error) {
	up := time.Since(s.node.started).Seconds()
	stat := &machineapi.SystemStat{
		BootTime: uint64(s.node.started.Unix()), ProcessCreated: 500, ProcessRunning: 1,
		CpuTotal: &machineapi.CPUStat{Idle: up * 0.95 * float64(s.node.hw.Cores), User: up * 0.03, System: up * 0.02},
	}

	for range s.node.hw.Cores {
		stat.Cpu = append(stat.Cpu, &machineapi.CPUStat{Idle: up * 0.95, User: up * 0.03, System: up * 0.02})
	}

	return &machineapi.SystemStatResponse{Messages: []*machineapi.SystemStat{stat}}, nil
}

// LoadAvg is low.
func (s *machined) LoadAvg(context.Context, *emptypb.Empty) (*machineapi.LoadAvgResponse, error) {
	return &machineapi.LoadAvgResponse{Messages: []*machineapi.LoadAvg{{Load1: 0.1, Load5: 0.1, Load15: 0.05}}}, nil
}

// CPUInfo counts the processors.
func (s *machined) CPUInfo(context.Context, *emptypb.Empty) (*machineapi.CPUInfoResponse, error) {
	info := &machineapi.CPUsInfo{}
	for i := range s.node.hw.Cores {
		info.CpuInfo = append(info.CpuInfo, &machineapi.CPUInfo{
			Processor: uint32(i), ModelName: "QEMU Virtual CPU",
			VendorId: "GenuineIntel",
		})
	}

	return &machineapi.CPUInfoResponse{Messages: []*machineapi.CPUsInfo{info}}, nil
}

// ServiceList shows the services.
func (s *machined) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	list := &machineapi.ServiceList{}
	for _, info := range s.node.services.list() {
		list.Services = append(list.Services, info.proto())
	}

	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{list}}, nil
}

// startable are the services that Talos lets its API start, stop and restart.
func startable(id string) bool { return id == "kubelet" || strings.HasPrefix(id, "ext-") }

func (s *machined) knowService(id, verb string) error {
	for _, info := range s.node.services.list() {
		if info.id != id {
			continue
		}

		if !startable(id) {
			return status.Errorf(codes.Unknown, "service %q doesn't support %s operation via API", id, verb)
		}

		return nil
	}

	return status.Errorf(codes.Unknown, "service %q not defined", id)
}

// ServiceStart starts a service that was stopped.
func (s *machined) ServiceStart(_ context.Context,
	in *machineapi.ServiceStartRequest,
) (*machineapi.ServiceStartResponse, error) {
	if err := s.knowService(in.GetId(), "start"); err != nil {
		return nil, err
	}

	s.node.startService(in.GetId())

	return &machineapi.ServiceStartResponse{Messages: []*machineapi.ServiceStart{{Resp: `Service "` + in.GetId() +
		`" started`}}}, nil
}

// ServiceStop stops a service.
func (s *machined) ServiceStop(_ context.Context, in *machineapi.ServiceStopRequest) (*machineapi.ServiceStopResponse,
	error,
) {
	if err := s.knowService(in.GetId(), "stop"); err != nil {
		return nil, err
	}

	s.node.services.set(in.GetId(), stateFinished, "Service finished successfully", nil)

	return &machineapi.ServiceStopResponse{Messages: []*machineapi.ServiceStop{{Resp: `Service "` + in.GetId() +
		`" stopped`}}}, nil
}

// ServiceRestart does both.
func (s *machined) ServiceRestart(_ context.Context,
	in *machineapi.ServiceRestartRequest,
) (*machineapi.ServiceRestartResponse, error) {
	if err := s.knowService(in.GetId(), "restart"); err != nil {
		return nil, err
	}

	s.node.services.set(in.GetId(), stateFinished, "Service finished successfully", nil)
	s.node.startService(in.GetId())

	return &machineapi.ServiceRestartResponse{Messages: []*machineapi.ServiceRestart{{Resp: `Service "` + in.GetId() +
		`" restarted`}}}, nil
}

func (n *node) startService(id string) {
	if id == "kubelet" {
		n.mu.Lock()
		n.kube.registered = false
		n.mu.Unlock()

		n.services.set(id, stateRunning, "Started task kubelet", n.kubeletHealth)
	} else {
		n.startExtension(strings.TrimPrefix(id, "ext-"))
	}
}

// Read has the one file that Talos' own tools read: the boot id, by which they see that a node has restarted.
func (s *machined) Read(in *machineapi.ReadRequest, stream machineapi.MachineService_ReadServer) error {
	if in.GetPath() != "/proc/sys/kernel/random/boot_id" {
		return status.Error(codes.Unimplemented, "method Read of "+in.GetPath()+" not implemented")
	}

	return stream.Send(&common.Data{Bytes: []byte(s.node.bootID + "\n")})
}

// List has the one directory whose content matters here, that of etcd's data (Talos: v1alpha1_server.go). It is there
// once the etcd service has begun to prepare itself.
func (s *machined) List(in *machineapi.ListRequest, stream machineapi.MachineService_ListServer) error {
	root := strings.TrimSuffix(in.GetRoot(), "/")

	switch {
	case root != constants.EtcdDataPath || in.GetRecurse():
		return status.Error(codes.Unimplemented, "method List of "+root+" not implemented")
	case !s.node.controlPlane() || !s.node.services.known("etcd"):
		return fmt.Errorf("stat %s: no such file or directory", root)
	}

	entries := []*machineapi.FileInfo{{Name: root, RelativeName: ".", Mode: uint32(fs.ModeDir | 0o700), IsDir: true}}
	if s.node.membership() != nil {
		entries = append(entries, &machineapi.FileInfo{
			Name: root + "/member", RelativeName: "member", Mode: uint32(fs.ModeDir | 0o700), IsDir: true,
		})
	}

	for _, e := range entries {
		if err := stream.Send(e); err != nil {
			return err
		}
	}

	return nil
}

// storaged is the old way to list disks; it is how clients find out whether a node is in maintenance mode.
type storaged struct {
	storageapi.UnimplementedStorageServiceServer

	node *node
}

// Disks lists the machine's disks.
func (s *storaged) Disks(context.Context, *emptypb.Empty) (*storageapi.DisksResponse, error) {
	list := &storageapi.Disks{}

	for i, d := range s.node.hw.Disks {
		spec := diskSpec(s.node.hw.Disks, i)
		list.Disks = append(list.Disks, &storageapi.Disk{
			DeviceName: spec.DevPath, Size: spec.Size, Model: spec.Model, Serial: spec.Serial, Modalias: spec.Modalias,
			Type: storageapi.Disk_HDD, BusPath: spec.BusPath, Subsystem: spec.SubSystem, SystemDisk: d == s.node.disk,
		})
	}

	return &storageapi.DisksResponse{Messages: []*storageapi.Disks{list}}, nil
}

// clock is the time API: the node's clock is the host's, unless a fault sets it.
type clock struct {
	timeapi.UnimplementedTimeServiceServer

	node *node
}

func (c clock) Time(context.Context, *emptypb.Empty) (*timeapi.TimeResponse, error) {
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{
		Server: "time.cloudflare.com", Localtime: timestamppb.New(c.node.now()), Remotetime: timestamppb.Now(),
	}}}, nil
}

func (c clock) TimeCheck(_ context.Context, in *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{
		Server: in.GetServer(), Localtime: timestamppb.New(c.node.now()), Remotetime: timestamppb.Now(),
	}}}, nil
}
