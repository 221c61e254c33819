package talos

import (
	"context"
	"slices"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clientretry "k8s.io/client-go/util/retry"
)

// Reboot restarts the node by kexec.
func (s *machined) Reboot(context.Context, *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	actor := uuid.NewString()
	s.node.do(command{sequence: "reboot", actor: actor, then: kexec})

	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: actor}}}, nil
}

// Shutdown switches the machine off.
func (s *machined) Shutdown(_ context.Context, in *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse, error) {
	actor := uuid.NewString()
	s.node.do(command{sequence: "shutdown", actor: actor, then: powerOff, drain: !in.GetForce()})

	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// The partitions that a reset may name.
const (
	partitionState     = "STATE"
	partitionEphemeral = "EPHEMERAL"
	partitionMeta      = "META"
)

// Reset wipes the system disk or partitions of it (Talos: v1alpha1_server.go, v1alpha1_sequencer.go).
func (s *machined) Reset(_ context.Context, in *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	n, actor := s.node, uuid.NewString()

	if len(in.GetUserDisksToWipe()) > 0 {
		return nil, status.Error(codes.Unimplemented, "method Reset of user disks not implemented")
	}

	var partitions []string

	for _, p := range in.GetSystemPartitionsToWipe() {
		if !slices.Contains([]string{partitionState, partitionEphemeral, partitionMeta}, p.GetLabel()) {
			return nil, status.Errorf(codes.Unknown, "failed to get volume status with label %q: resource "+
				"VolumeStatuses.block.talos.dev(runtime/%s@undefined) doesn't exist", p.GetLabel(), p.GetLabel())
		}

		if p.GetWipe() {
			partitions = append(partitions, p.GetLabel())
		}
	}

	c := command{sequence: "reset", actor: actor, then: powerOff, drain: in.GetGraceful()}
	if in.GetReboot() {
		// the boot partition that is left is started by kexec; a wiped disk leaves the choice to the firmware
		if c.then = kexec; len(partitions) == 0 {
			c.then = hardReset
		}
	}

	c.before = func() error {
		if in.GetGraceful() {
			n.leaveCluster()
		}

		n.wipe(partitions)

		return nil
	}
	n.do(c)

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: actor}}}, nil
}

// goingDown tells whether the node is cordoned because it goes down.
func (n *node) goingDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.cordoned
}

// drain is what a node does of its own accord before it goes down in an orderly way: it is cordoned, and its pods are
// evicted as far as disruption budgets allow. A node that cannot reach the API goes down all the same, unlike Talos'
// own, some of whose sequences give up after a minute.
func (n *node) drain(actor string) {
	n.mu.Lock()
	n.cordoned = true
	joined := n.kube.joined
	n.mu.Unlock()

	if !joined {
		return
	}

	ctx, cancel := context.WithTimeout(n.ctx, n.fw.opts.Latencies.Drain)
	defer cancel()

	k := n.kubelet()

	// the kubelet may be reporting at the same time
	err := clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error { return k.Join(n.ctx) })
	if err == nil {
		n.applyNode(n.ctx, k)
		err = k.Drain(ctx)
	}

	if err != nil {
		n.sys.log("cordonAndDrainNode: %v", err)
	}

	n.task("cordonAndDrainNode", actor)
}

// leaveCluster is the graceful part of a reset: etcd is left. A failure is logged and does not stop the
// reset, as Talos has it.
func (n *node) leaveCluster() {
	if n.membership() == nil || !n.services.running("etcd") {
		return
	}

	if err := n.leaveEtcd(n.ctx); err != nil {
		n.sys.log("failed to leave cluster: %v", err)
	}
}

// wipe empties partitions, or the whole disk when none is named.
func (n *node) wipe(partitions []string) {
	if n.disk == nil {
		return
	}

	if len(partitions) == 0 {
		n.wipeEtcd()
		n.storing.Lock()
		defer n.storing.Unlock()
		n.disk.Write(nil)

		return
	}

	if slices.Contains(partitions, partitionEphemeral) {
		n.wipeEtcd()
	}

	n.store(func(i *Installed) {
		for _, p := range partitions {
			switch p {
			case partitionState:
				i.Config = nil
			case partitionEphemeral:
				i.etcd, i.kubelet, i.images, i.recovery = nil, nil, nil, nil
			case partitionMeta:
				clear(i.META)
			}
		}
	})
}

// MetaWrite sets a key of the META partition.
func (s *machined) MetaWrite(_ context.Context, in *machineapi.MetaWriteRequest) (*machineapi.MetaWriteResponse,
	error,
) {
	if in.GetKey() > 255 {
		return nil, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	s.node.setMeta(func(m map[uint8]string) { m[uint8(in.GetKey())] = string(in.GetValue()) })

	return &machineapi.MetaWriteResponse{Messages: []*machineapi.MetaWrite{{}}}, nil
}

// MetaDelete removes one.
func (s *machined) MetaDelete(_ context.Context, in *machineapi.MetaDeleteRequest) (*machineapi.MetaDeleteResponse,
	error,
) {
	if in.GetKey() > 255 {
		return nil, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	found := false
	s.node.setMeta(func(m map[uint8]string) {
		_, found = m[uint8(in.GetKey())]
		delete(m, uint8(in.GetKey()))
	})

	if !found {
		return nil, status.Error(codes.NotFound, "meta key not found")
	}

	return &machineapi.MetaDeleteResponse{Messages: []*machineapi.MetaDelete{{}}}, nil
}

func (n *node) setMeta(change func(map[uint8]string)) {
	n.mu.Lock()

	meta := map[uint8]string{}
	for k, v := range n.meta {
		meta[k] = v
	}

	change(meta)
	n.meta = meta
	n.mu.Unlock()

	n.store(func(i *Installed) { i.META = meta })
	n.kick.notify()
}
