package talos

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/tests/lab/kube"
)

// snapshotChunk is how much of a snapshot goes into one message (Talos: pkg/chunker/stream).
const snapshotChunk = 1024

// EtcdSnapshot streams a snapshot of what the node's own member stores, which needs no quorum.
func (s *machined) EtcdSnapshot(_ *machineapi.EtcdSnapshotRequest,
	stream machineapi.MachineService_EtcdSnapshotServer,
) error {
	if err := s.onlyControlPlane("etcd snapshot"); err != nil {
		return err
	}

	m, err := s.node.localEtcd()
	if err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	data, err := m.cluster.snapshot(m.id)
	if err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	for len(data) > 0 {
		n := min(snapshotChunk, len(data))
		if err := stream.Send(&common.Data{Bytes: data[:n]}); err != nil {
			return err
		}

		data = data[n:]
	}

	return nil
}

// EtcdRecover takes a snapshot that a bootstrap is to recover from (Talos: v1alpha1_server.go).
func (s *machined) EtcdRecover(stream machineapi.MachineService_EtcdRecoverServer) error {
	n := s.node

	if !n.services.running("cri") {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}

	if err := s.onlyControlPlane("etcd recover"); err != nil {
		return err
	}

	var data bytes.Buffer

	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return err
		}

		data.Write(msg.GetBytes())
	}

	n.store(func(i *Installed) { i.recovery = data.Bytes() })

	return stream.SendAndClose(&machineapi.EtcdRecoverResponse{Messages: []*machineapi.EtcdRecover{{}}})
}

// recovered are the objects of the snapshot that was uploaded. It is used up when it could be read.
func (n *node) recovered(skipHash bool) (*kube.Cluster, error) {
	i := n.installed()
	if i == nil || i.recovery == nil {
		return nil, errors.New("error verifying snapshot: stat /var/lib/etcd.snapshot: no such file or directory")
	}

	entries, revision, err := readSnapshot(i.recovery, skipHash)
	if err != nil {
		return nil, fmt.Errorf("error recovering from the snapshot: %w", err)
	}

	stored, err := kube.Restore(entries, revision)
	if err != nil {
		return nil, fmt.Errorf("error recovering from the snapshot: %w", err)
	}

	n.store(func(i *Installed) { i.recovery = nil })

	return stored, nil
}
