package talos

import (
	"context"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

// Who may call what besides the admins (Talos: system/services/machined.go, rules).
var (
	readers = names(`CPUInfo CPUFreqStats Containers DiskStats DiskUsage Dmesg EtcdAlarmList EtcdMemberList EtcdStatus Events Hostname
		ImageList List LoadAvg Logs LogsContainers Memory Mounts NetworkDeviceStats Netstat Processes ServiceList Stats SystemStat Version`)
	operators = names(`EtcdAlarmDisarm EtcdDefragment EtcdSnapshot ImagePull PacketCapture Reboot Restart ServiceRestart ServiceStart
		ServiceStop Shutdown`)
	backups = names(`EtcdAlarmList EtcdMemberList EtcdSnapshot EtcdStatus`)
	// Other services' methods that only read.
	readingServices = map[string]bool{
		"/cluster.ClusterService/HealthCheck": true, "/inspect.InspectService/ControllerRuntimeDependencies": true,
		"/cosi.resource.State/Get": true, "/cosi.resource.State/List": true, "/cosi.resource.State/Watch": true,
		"/storage.StorageService/Disks": true, "/time.TimeService/Time": true, "/time.TimeService/TimeCheck": true,
	}
)

func names(list string) map[string]bool {
	out := map[string]bool{}
	for _, name := range strings.Fields(list) {
		out["/machine.MachineService/"+name] = true
	}

	return out
}

func authorized(method string, roles role.Set) bool {
	switch {
	case roles.Includes(role.Admin):
		return true
	case readers[method] || readingServices[method]:
		return roles.Includes(role.Operator) || roles.Includes(role.Reader) || backups[method] &&
			roles.Includes(role.EtcdBackup)
	case operators[method], method == "/machine.ImageService/Pull":
		return roles.Includes(role.Operator) || backups[method] && roles.Includes(role.EtcdBackup)
	default:
		return false
	}
}

func rolesOf(ctx context.Context) role.Set {
	md, _ := metadata.FromIncomingContext(ctx)
	roles, _ := role.Parse(md.Get(constants.APIAuthzRoleMetadataKey))

	return roles
}

// backend is the node's own services, behind the front: it believes the roles that the front tells it.
func (n *node) backend(closing <-chan struct{}, register func(*grpc.Server)) *grpc.Server {
	check := func(ctx context.Context, method string) error {
		// maintenance mode has no rules of its own: what needs the admin role says so itself
		if n.config() == nil || authorized(method, rolesOf(ctx)) {
			return nil
		}

		return errNotAuthorized
	}

	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
			error,
		) {
			if err := check(ctx, info.FullMethod); err != nil {
				return nil, err
			}

			return handler(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
			handler grpc.StreamHandler,
		) error {
			if err := check(ss.Context(), info.FullMethod); err != nil {
				return err
			}

			if endless[info.FullMethod] {
				return ending(closing, srv, ss, handler)
			}

			return handler(srv, ss)
		}),
	)
	register(s)

	return s
}

// endless are the streams that only the client ends, and whose implementation does not know when the node does.
var endless = map[string]bool{"/cosi.resource.State/Watch": true}

// ending runs a stream until the services are closed.
func ending(closing <-chan struct{}, srv any, ss grpc.ServerStream, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()

	go func() {
		select {
		case <-closing:
			cancel()
		case <-ctx.Done():
		}
	}()

	err := handler(srv, &limited{ServerStream: ss, ctx: ctx})

	select {
	case <-closing:
		return status.Error(codes.Unavailable, "the node is going down")
	default:
		return err
	}
}

// limited is a stream with a context of its own.
type limited struct {
	grpc.ServerStream
	ctx context.Context
}

func (l *limited) Context() context.Context { return l.ctx }

// guarded is the node's resources as the API shows them: to read only, and secret ones to admins only
// (Talos: internal/app/resources/access.go).
func (n *node) guarded() state.State {
	return state.WrapCore(state.Filter(n.state, func(ctx context.Context, access state.Access) error {
		if !access.Verb.Readonly() {
			return status.Error(codes.PermissionDenied, "write access is not allowed")
		}

		rd, err := safe.StateGet[*meta.ResourceDefinition](ctx, n.state,
			resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, strings.ToLower(access.ResourceType),
				resource.VersionUndefined))

		switch {
		case state.IsNotFoundError(err):
			return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
		case err != nil:
			return err
		case rd.TypedSpec().Sensitivity == meta.Sensitive && !rolesOf(ctx).Includes(role.Admin):
			return errNotAuthorized
		}

		_, err = n.state.Get(ctx, resource.NewMetadata(meta.NamespaceName, meta.NamespaceType, access.ResourceNamespace,
			resource.VersionUndefined))
		if state.IsNotFoundError(err) {
			return status.Errorf(codes.PermissionDenied, "namespace %q is not supported", access.ResourceNamespace)
		}

		return err
	}))
}
