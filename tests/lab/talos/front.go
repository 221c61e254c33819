package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"talos-proxmox/tests/lab/journal"
)

// front is what listens on a node's port 50000: Talos' apid, or the maintenance service. It does not know the messages;
// it passes frames to the node's own services or to other nodes, and it is where calls are recorded and faults carried
// out.
type front struct {
	node        *node
	maintenance bool
	server      *grpc.Server
	local       *grpc.ClientConn
	closeLocal  func()
	closing     chan struct{} // closed when watches have to end

	mu     sync.Mutex
	conns  map[string]net.Conn         // accepted connections, by the peer's address
	remote map[string]*grpc.ClientConn // to other nodes
}

// newFront makes a front before services that register puts into a server.
func newFront(n *node, conf *tls.Config, register func(*grpc.Server)) *front {
	f := &front{node: n, closing: make(chan struct{}), conns: map[string]net.Conn{}, remote: map[string]*grpc.ClientConn{}}
	backend := n.backend(f.closing, register)
	lis := bufconn.Listen(1 << 20)
	go func() { _ = backend.Serve(lis) }() // ends with closeLocal

	local, err := grpc.NewClient("passthrough:///machined",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), frameOptions)
	if err != nil {
		panic(err) // the target is a constant
	}

	f.local = local
	f.closeLocal = sync.OnceFunc(func() {
		_ = local.Close()
		backend.Stop()
	})
	f.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(conf)),
		grpc.ForceServerCodecV2(frameCodec{}),
		grpc.UnknownServiceHandler(f.handle),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.WaitForHandlers(true),
	)

	return f
}

// listen serves one more address until the front is closed.
func (f *front) listen(l net.Listener) {
	go func() { _ = f.server.Serve(&tracked{Listener: l, front: f}) }()
}

// drainTime is how long calls that run may take to end (Talos: 5 s in maintenance_service.go).
const drainTime = 5 * time.Second

// drain stops listening and lets calls that run end. Those that would not end by themselves are ended.
func (f *front) drain() {
	close(f.closing)

	done := make(chan struct{})

	go func() {
		f.server.GracefulStop()
		close(done)
	}()

	select {
	case <-done:
	case <-time.After(drainTime):
		f.server.Stop()
		<-done
	case <-f.node.ctx.Done():
		f.server.Stop()
		<-done
	}
}

// close ends everything at once.
func (f *front) close() {
	f.server.Stop()
	f.closeLocal()

	f.mu.Lock()
	defer f.mu.Unlock()

	for _, c := range f.remote {
		_ = c.Close()
	}

	f.remote = nil
}

// tracked remembers the connections it accepts, so that one can be cut.
type tracked struct {
	net.Listener
	front *front
}

func (t *tracked) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}

	key := c.RemoteAddr().String()

	t.front.mu.Lock()
	t.front.conns[key] = c
	t.front.mu.Unlock()

	return &trackedConn{Conn: c, forget: func() {
		t.front.mu.Lock()
		defer t.front.mu.Unlock()
		delete(t.front.conns, key)
	}}, nil
}

type trackedConn struct {
	net.Conn
	forget func()
}

func (c *trackedConn) Close() error {
	c.forget()

	return c.Conn.Close()
}

// hangUp cuts the connection that a call came in by.
func (f *front) hangUp(ctx context.Context) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return
	}

	f.mu.Lock()
	c := f.conns[p.Addr.String()]
	f.mu.Unlock()

	if c != nil {
		_ = c.Close()
	}
}

// handle serves every call.
func (f *front) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(stream.Context())
	forwarded := len(md.Get("proxyfrom")) > 0

	if !forwarded {
		f.node.fw.opts.Timeline.Touch()
	}

	targets, many, err := f.route(method, md)
	if err != nil {
		return err
	}

	roles := f.roles(stream.Context(), md)

	switch {
	case many:
		return f.forwardToMany(stream, method, md, roles, targets)
	case len(targets) == 1 && !f.node.owns(targets[0]):
		conn, err := f.dial(targets[0])
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}

		return relay(stream, stream, conn, method, outgoing(md, roles))
	default:
		return f.here(stream, method, md, roles)
	}
}

// here passes a call to the node's own services, unless a fault strikes it.
func (f *front) here(stream grpc.ServerStream, method string, md metadata.MD, roles role.Set) error {
	j := f.node.fw.opts.Journal
	sink := stream
	fault := j.Enter(journal.Talos, f.node.name(), method)

	if fault != nil {
		switch fault.Kind {
		case journal.Refuse:
			return status.Error(codes.Unavailable, fault.Message)
		case journal.Reset:
			f.hangUp(stream.Context())

			return status.Error(codes.Unavailable, "connection reset")
		case journal.LoseReply:
			sink = unresponsive{stream}
		case journal.Stall:
			fault.Hold(stream.Context(), f.closing)
			f.hangUp(stream.Context())

			return status.Error(codes.Unavailable, "connection reset")
		case journal.FailTask: // not for this face
		}
	}

	err := relay(stream, sink, f.local, method, outgoing(md, roles))

	if fault != nil && fault.Kind == journal.LoseReply {
		f.hangUp(stream.Context())

		return status.Error(codes.Unavailable, "connection reset")
	}

	if why := f.unknown(method, err); why != "" {
		j.Refused(journal.Talos, f.node.name(), method, why)
	}

	return err
}

// unknown tells why a call failed for want of an implementation in the lab, empty when it did not. What the services
// refuse in their own words a real node refuses as well; so does maintenance mode whatever it does not know.
func (f *front) unknown(method string, err error) string {
	st := status.Convert(err)
	if st.Code() != codes.Unimplemented || f.maintenance && !f.lacking(method) || f.node.tooOld(method) {
		return ""
	}

	msg := st.Message()
	if strings.HasPrefix(msg, "method ") && strings.HasSuffix(msg, " not implemented") ||
		strings.HasPrefix(msg, "unknown ") {
		return msg
	}

	return ""
}

// lacking are the methods that the lab lacks and maintenance mode has.
func (*front) lacking(method string) bool {
	return method == "/machine.MachineService/GenerateConfiguration" || method == "/storage.StorageService/BlockDeviceWipe"
}

// roles are the caller's: those in his certificate, or, if he is another node, those that node vouches for
// (Talos: pkg/grpc/middleware/authz/injector.go).
func (f *front) roles(ctx context.Context, md metadata.MD) role.Set {
	if f.maintenance {
		return role.MakeSet(role.Reader)
	}

	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)

	if !ok || len(info.State.PeerCertificates) == 0 {
		return role.Zero
	}

	roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)
	if vouched := md.Get(constants.APIAuthzRoleMetadataKey); roles.Includes(role.Impersonator) && len(vouched) > 0 {
		roles, _ = role.Parse(vouched)
	}

	return roles
}

// outgoing is the metadata of a call that is passed on.
func outgoing(md metadata.MD, roles role.Set) metadata.MD {
	out := metadata.MD{}

	for k, v := range md {
		if !strings.HasPrefix(k, ":") && k != "node" && k != "nodes" && k != "content-type" && k != "user-agent" &&
			!strings.HasPrefix(k, "grpc-") {
			out[k] = v
		}
	}

	out.Set(constants.APIAuthzRoleMetadataKey, roles.Strings()...)
	out.Set("proxyfrom", append(md.Get(":authority"), "unknown")[0])

	return out
}

// dial returns a connection to another node's API, with the certificate that control planes have for it.
func (f *front) dial(target string) (*grpc.ClientConn, error) {
	f.node.mu.Lock()
	id := f.node.identity
	f.node.mu.Unlock()

	f.mu.Lock()
	defer f.mu.Unlock()

	if c := f.remote[target]; c != nil {
		return c, nil
	}

	if f.remote == nil || id == nil || id.client == nil {
		return nil, errors.New("no request forwarding")
	}

	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 100*time.Millisecond, time.Second // on loopback a node is back as soon as it is back

	c, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(target, "50000"),
		grpc.WithContextDialer(f.node.dialTCP),
		grpc.WithTransportCredentials(credentials.NewTLS(
			&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: id.pool, Certificates: []tls.Certificate{*id.client}})),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
		frameOptions)
	if err != nil {
		return nil, err
	}

	f.remote[target] = c

	return c, nil
}

// flush drops the connections to other nodes: the certificates they were made with are out of date.
func (f *front) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()

	for target, c := range f.remote {
		_ = c.Close()
		delete(f.remote, target)
	}
}

// frame is one message, not decoded.
type frame struct{ payload []byte }

// frameCodec passes frames through.
type frameCodec struct{}

var _ encoding.CodecV2 = frameCodec{}

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, errors.New("not a frame")
	}

	return mem.BufferSlice{mem.SliceBuffer(f.payload)}, nil
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return errors.New("not a frame")
	}

	f.payload = data.Materialize()

	return nil
}

func (frameCodec) Name() string { return "proto" }

var frameOptions = grpc.WithDefaultCallOptions(grpc.ForceCodecV2(frameCodec{}),
	grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize))

// unresponsive is a stream whose replies go nowhere.
type unresponsive struct{ grpc.ServerStream }

func (unresponsive) SendMsg(any) error            { return nil }
func (unresponsive) SendHeader(metadata.MD) error { return nil }
func (unresponsive) SetTrailer(metadata.MD)       {}

// relay runs a call on another connection, frame by frame: requests come from one stream, replies go to the other,
// which is the same unless replies are lost.
func relay(from, to grpc.ServerStream, conn *grpc.ClientConn, method string, md metadata.MD) error {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(from.Context(), md))
	defer cancel()

	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}

	go func() {
		for {
			var f frame

			err := from.RecvMsg(&f)
			if errors.Is(err, io.EOF) {
				_ = call.CloseSend()

				return
			}

			if err != nil {
				cancel()

				return
			}

			if call.SendMsg(&f) != nil {
				return
			}
		}
	}()

	for {
		var f frame

		err := call.RecvMsg(&f)
		if errors.Is(err, io.EOF) {
			to.SetTrailer(call.Trailer())

			return nil
		}

		if err != nil {
			return err
		}

		if err := to.SendMsg(&f); err != nil {
			return err
		}
	}
}
