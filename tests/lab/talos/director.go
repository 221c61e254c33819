package talos

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// streamed are the methods whose replies are a stream of messages rather than one with a list (Talos:
// internal/app/apid/main.go).
var streamed = regexp.MustCompile(
	`^/machine\.MachineService/(Copy|DiskUsage|Dmesg|EtcdSnapshot|Events|ImageList|Kubeconfig|List|Logs|PacketCapture|Read)$` +
		`|^/os\.OSService/Dmesg$|^/cluster\.ClusterService/HealthCheck$|Stream$`)

// route says where a call goes: nowhere in particular (this node), to one node, or to many (Talos: apid/pkg/director).
func (f *front) route(method string, md metadata.MD) (targets []string, many bool, err error) {
	node, nodes := md.Get("node"), md.Get("nodes")

	if f.maintenance || len(md.Get("proxyfrom")) > 0 {
		return nil, false, nil
	}

	if _, named := md["node"]; named && len(node) != 1 {
		return nil, false, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}

	if !f.node.controlPlane() {
		if len(node) == 1 && f.node.owns(node[0]) {
			node = nil
		}

		if len(nodes) == 1 && f.node.owns(nodes[0]) {
			nodes = nil
		}

		if len(node) > 0 || len(nodes) > 0 {
			return nil, false, status.Error(codes.PermissionDenied, "no request forwarding")
		}
	}

	switch {
	case len(nodes) > 0 && strings.HasPrefix(method, "/cosi."):
		return nil, false, status.Error(codes.InvalidArgument, "one-2-many proxying is not supported for COSI methods")
	case len(nodes) > 0:
		return nodes, true, nil
	default:
		return node, false, nil
	}
}

// forwardToMany sends one request to several nodes and merges what they answer. An error of one node is part of the
// answer, not the end of the call.
func (f *front) forwardToMany(stream grpc.ServerStream, method string, md metadata.MD, roles role.Set,
	targets []string,
) error {
	var request frame
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}

	var (
		streaming = streamed.MatchString(method)
		out       = &locked{ServerStream: stream}
		replies   = make([][]byte, len(targets))
		wg        sync.WaitGroup
	)

	for i, target := range targets {
		wg.Go(func() {
			sink := &labelled{locked: out, target: target, streaming: streaming}
			source := &replay{ServerStream: stream, frame: request}

			var err error
			if f.node.owns(target) {
				err = f.here(&both{source, sink}, method, md, roles)
			} else if conn, dialErr := f.dial(target); dialErr != nil {
				err = dialErr
			} else {
				err = relay(source, sink, conn, method, outgoing(md, roles))
			}

			if err != nil {
				sink.fail(err)
			}

			replies[i] = sink.reply
		})
	}

	wg.Wait()

	if streaming {
		return nil
	}

	return stream.SendMsg(&frame{payload: slices.Concat(replies...)})
}

// replay gives the request that was read once to each of several calls.
type replay struct {
	grpc.ServerStream
	frame frame
	done  bool
}

func (r *replay) RecvMsg(m any) error {
	if r.done {
		return io.EOF
	}

	f, ok := m.(*frame)
	if !ok {
		return errors.New("not a frame")
	}

	*f, r.done = r.frame, true

	return nil
}

// both reads from one stream and writes to another.
type both struct {
	*replay
	sink *labelled
}

func (b *both) SendMsg(m any) error          { return b.sink.SendMsg(m) }
func (b *both) SetTrailer(metadata.MD)       {}
func (b *both) SendHeader(metadata.MD) error { return nil }

// locked lets several calls send on one stream.
type locked struct {
	grpc.ServerStream
	mu sync.Mutex
}

func (l *locked) send(payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.SendMsg(&frame{payload: payload})
}

// labelled adds the name of the node to its replies: messages of a stream are passed on, single replies are kept.
type labelled struct {
	*locked
	target    string
	streaming bool
	reply     []byte
}

func (l *labelled) SetTrailer(metadata.MD)       {}
func (l *labelled) SendHeader(metadata.MD) error { return nil }

func (l *labelled) SendMsg(m any) error {
	f, ok := m.(*frame)
	if !ok {
		return errors.New("not a frame")
	}

	label, err := proto.Marshal(&common.Empty{Metadata: &common.Metadata{Hostname: l.target}})
	if err != nil {
		return err
	}

	if l.streaming {
		return l.send(slices.Concat(f.payload, label))
	}

	l.reply, err = addToFirst(f.payload, label)

	return err
}

func (l *labelled) fail(err error) {
	empty := &common.Empty{Metadata: &common.Metadata{
		Hostname: l.target, Error: err.Error(),
		Status: status.Convert(err).Proto(),
	}}

	if l.streaming {
		if payload, err := proto.Marshal(empty); err == nil {
			_ = l.send(payload)
		}

		return
	}

	if payload, err := proto.Marshal(&common.EmptyResponse{Messages: []*common.Empty{empty}}); err == nil {
		l.reply = payload
	}
}

// addToFirst adds fields to the one message in a reply. Each reply is a message whose field 1 repeats the messages of
// the nodes, and field 1 of those is the metadata: so bytes can be joined without knowing the types.
func addToFirst(reply, fields []byte) ([]byte, error) {
	num, typ, n := protowire.ConsumeTag(reply)
	if n < 0 || num != 1 || typ != protowire.BytesType {
		return nil, errors.New("unexpected message format")
	}

	message, n := protowire.ConsumeBytes(reply[n:])
	if n < 0 {
		return nil, protowire.ParseError(n)
	}

	out := protowire.AppendTag(nil, 1, protowire.BytesType)

	return protowire.AppendBytes(out, slices.Concat(message, fields)), nil
}
