package talos

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Impostor is a machine at a node's address that is not the node's VM. To everybody it behaves as Talos does in
// maintenance mode, takes whatever configuration it is sent, and keeps all that it was sent.
type Impostor struct {
	uuid   string
	server *grpc.Server
	serve  sync.WaitGroup

	mu       sync.Mutex
	calls    []string
	received []byte
}

// NewImpostor takes the API port of an address, with an SMBIOS UUID of its own.
func NewImpostor(ctx context.Context, address netip.Addr, uuid string) (*Impostor, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(x509.Organization("maintenance"))
	if err != nil {
		return nil, err
	}

	pair, err := x509.NewKeyPair(ca, x509.IPAddresses([]net.IP{address.AsSlice()}),
		x509.CommonName("maintenance-service.talos.dev"),
		x509.NotAfter(time.Now().Add(certificateTTL)))
	if err != nil {
		return nil, err
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(apidPort)))
	if err != nil {
		return nil, err
	}

	i := &Impostor{uuid: uuid}
	i.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*pair.Certificate},
		})),
		grpc.UnaryInterceptor(i.unary), grpc.StreamInterceptor(i.stream), grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
	)

	shown := hardware.NewSystemInformation(hardware.SystemInformationID)
	shown.TypedSpec().Manufacturer, shown.TypedSpec().UUID = "QEMU", uuid

	resources := newState()
	if err := resources.Create(ctx, shown); err != nil {
		return nil, err
	}

	machineapi.RegisterMachineServiceServer(i.server, impostorMachine{})
	storageapi.RegisterStorageServiceServer(i.server, impostorStorage{})
	cosiv1alpha1.RegisterStateServer(i.server, server.NewState(resources))

	i.serve.Go(func() { _ = i.server.Serve(listener) }) // ends with Close

	return i, nil
}

// Close gives the address back.
func (i *Impostor) Close() {
	i.server.Stop()
	i.serve.Wait()
}

// UUID is what it shows.
func (i *Impostor) UUID() string { return i.uuid }

// Calls are the methods that were called, in order.
func (i *Impostor) Calls() []string {
	i.mu.Lock()
	defer i.mu.Unlock()

	return slices.Clone(i.calls)
}

// Configured says whether it was given a configuration.
func (i *Impostor) Configured() bool {
	return slices.ContainsFunc(i.Calls(), func(call string) bool { return strings.HasSuffix(call, "/ApplyConfiguration") })
}

// Received is all that was sent to it, one message after the other.
func (i *Impostor) Received() string {
	i.mu.Lock()
	defer i.mu.Unlock()

	return string(i.received)
}

func (i *Impostor) called(method string) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.calls = append(i.calls, method)
}

func (i *Impostor) keep(message any) {
	i.mu.Lock()
	defer i.mu.Unlock()

	if m, ok := message.(proto.Message); ok {
		raw, _ := proto.Marshal(m) // it has just been read
		i.received = append(i.received, raw...)
	}
}

func (i *Impostor) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any,
	error,
) {
	i.called(info.FullMethod)
	i.keep(request)

	return handle(ctx, request)
}

func (i *Impostor) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handle grpc.StreamHandler,
) error {
	i.called(info.FullMethod)

	return handle(srv, &kept{stream, i})
}

// kept is a stream whose requests are kept.
type kept struct {
	grpc.ServerStream
	by *Impostor
}

func (k *kept) RecvMsg(message any) error {
	err := k.ServerStream.RecvMsg(message)
	if err == nil {
		k.by.keep(message)
	}

	return err
}

type impostorMachine struct {
	machineapi.UnimplementedMachineServiceServer
}

func (impostorMachine) ApplyConfiguration(context.Context,
	*machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{}}}, nil
}

func (impostorMachine) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return nil, errMaintenance
}

type impostorStorage struct {
	storageapi.UnimplementedStorageServiceServer
}

func (impostorStorage) Disks(context.Context, *emptypb.Empty) (*storageapi.DisksResponse, error) {
	return &storageapi.DisksResponse{Messages: []*storageapi.Disks{{}}}, nil
}
