package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/provider/about"
)

//go:embed schema.json
var packageSchema string

// server answers the engine. It differs from the server of the SDK in one point: the operator's Ctrl-C ends the waits
// of hooks.
type server struct {
	pulumirpc.UnimplementedResourceProviderServer

	host *provider.HostClient
	// interrupted ends when the engine says that the operator interrupted the update, or that it is over.
	interrupted context.Context
	interrupt   context.CancelFunc
}

func newServer(host *provider.HostClient) *server {
	s := &server{host: host}
	s.interrupted, s.interrupt = context.WithCancel(context.Background())

	return s
}

func (s *server) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: about.Version}, nil
}

func (s *server) GetSchema(_ context.Context, req *pulumirpc.GetSchemaRequest) (*pulumirpc.GetSchemaResponse, error) {
	if v := req.GetVersion(); v != 0 {
		return nil, fmt.Errorf("unsupported schema version %d", v)
	}

	return &pulumirpc.GetSchemaResponse{Schema: packageSchema}, nil
}

func (s *server) Configure(context.Context, *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	return &pulumirpc.ConfigureResponse{
		AcceptSecrets: true, SupportsPreview: true, AcceptResources: true, AcceptOutputs: true,
	}, nil
}

// Cancel ends the waits of hooks.
func (s *server) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	s.interrupt()

	return &emptypb.Empty{}, nil
}

// Attach serves an engine that did not start this process (PULUMI_DEBUG_PROVIDERS).
func (s *server) Attach(_ context.Context, req *pulumirpc.PluginAttach) (*emptypb.Empty, error) {
	host, err := provider.NewHostClient(req.GetAddress())
	s.host = host
	// The engine before it has canceled what it was served.
	s.interrupted, s.interrupt = context.WithCancel(context.Background())

	return &emptypb.Empty{}, err
}

// Construct makes a cluster. Its hooks are served by this process, which the engine keeps until the update is over.
func (s *server) Construct(ctx context.Context, req *pulumirpc.ConstructRequest) (*pulumirpc.ConstructResponse, error) {
	response, err := provider.Construct(ctx, req, s.host.EngineConn(), func(ctx *pulumi.Context, typ, name string,
		inputs provider.ConstructInputs, options pulumi.ResourceOption,
	) (*provider.ConstructResult, error) {
		if typ != about.ClusterType {
			return nil, fmt.Errorf("this package has no component %s", typ)
		}

		given, err := readInputs(req.GetInputs())
		if err != nil {
			return nil, err
		}

		props, err := inputs.Map()
		if err != nil {
			return nil, err
		}

		ctx = stacks.WithProgram(hookutil.WithInterrupt(ctx, s.interrupted), req.GetMonitorEndpoint())

		return newCluster(ctx, name, given, props, options)
	})

	dropUnknownSecrets(response.GetState())

	return response, err
}

// dropUnknownSecrets leaves out secrets without a value, which the engine takes for malformed ones: those of resources
// that --target or --exclude kept from being created.
func dropUnknownSecrets(values *structpb.Struct) {
	for name, value := range values.GetFields() {
		fields := value.GetStructValue().GetFields()
		if fields[resource.SigKey].GetStringValue() != resource.SecretSig {
			dropUnknownSecrets(value.GetStructValue())
		} else if _, known := fields["value"]; !known {
			delete(values.GetFields(), name)
		}
	}
}
