package talos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// pulled is a container image on a node's EPHEMERAL partition.
type pulled struct {
	namespace common.ContainerdNamespace
	name      string
	at        time.Time
}

var errImageNotFound = errors.New("not found")

// Withdraw takes images away from all registries: those whose name, complete with the registry and tag, has the given
// end.
func (f *Firmware) Withdraw(suffix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.withdrawn = append(f.withdrawn, suffix)
}

// Publish gives them back.
func (f *Firmware) Publish(suffix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.withdrawn = slices.DeleteFunc(f.withdrawn, func(s string) bool { return s == suffix })
}

// DenyArg has Talos render no component with an argument, as a version may that the program does not know.
func (f *Firmware) DenyArg(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied = append(f.denied, name)
}

// pull fetches an image unless it is there (Talos: internal/pkg/containers/image/image.go). The lab has no registries:
// whatever is well named and has not been withdrawn can be pulled.
func (n *node) pull(ctx context.Context, namespace common.ContainerdNamespace, ref string) error {
	return n.pullIn(ctx, namespace, ref, n.fw.opts.Latencies.Pull)
}

// pullIn is pull with a latency of its own.
func (n *node) pullIn(ctx context.Context, namespace common.ContainerdNamespace, ref string,
	latency time.Duration,
) error {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return fmt.Errorf("failed to parse image reference %q: %w", ref, err)
	}

	name := named.String()
	if n.hasImage(namespace, name) {
		return nil
	}

	n.fw.mu.Lock()
	gone := slices.ContainsFunc(n.fw.withdrawn, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	n.fw.mu.Unlock()

	if gone || unpublished(name) {
		return notPulled(name)
	}

	if latency > 0 {
		s, err := n.fw.opts.Timeline.Wait(ctx, "pull", n.hw.Name, latency, n.span())
		if err != nil {
			return err
		}

		n.setNewest(s)
	}

	n.store(func(i *Installed) {
		i.images = append(slices.Clone(i.images), pulled{namespace: namespace, name: name, at: time.Now()})
	})

	return nil
}

// unpublished says whether an image is an installer that Talos does not publish: from 1.14 on, the Image Factory makes
// them.
func unpublished(name string) bool {
	tag, ok := strings.CutPrefix(name, "ghcr.io/siderolabs/installer:v")
	version, err := semver.ParseTolerant(tag)

	return ok && err == nil && version.GTE(semver.MustParse("1.14.0-0"))
}

func notPulled(name string) error {
	return fmt.Errorf("failed to pull image %q: failed to resolve reference %q: %s: %w", name, name, name,
		errImageNotFound)
}

func (n *node) hasImage(namespace common.ContainerdNamespace, name string) bool {
	i := n.installed()

	return i != nil && slices.ContainsFunc(i.images,
		func(p pulled) bool { return p.namespace == namespace && p.name == name })
}

func knownNamespace(ns common.ContainerdNamespace) error {
	if ns != common.ContainerdNamespace_NS_CRI && ns != common.ContainerdNamespace_NS_SYSTEM {
		return status.Errorf(codes.InvalidArgument, "invalid namespace %s", ns)
	}

	return nil
}

// ImagePull fetches an image (Talos: v1alpha1_images.go).
func (s *machined) ImagePull(ctx context.Context, in *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse,
	error,
) {
	if err := knownNamespace(in.GetNamespace()); err != nil {
		return nil, err
	}

	err := s.node.pull(ctx, in.GetNamespace(), in.GetReference())

	switch {
	case errors.Is(err, errImageNotFound):
		return nil, status.Errorf(codes.NotFound, "error pulling image: %s", err)
	case err != nil:
		return nil, err
	}

	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}

// ImageList lists the images that were pulled: for a client, or for what the node runs.
func (s *machined) ImageList(in *machineapi.ImageListRequest, stream machineapi.MachineService_ImageListServer) error {
	if err := knownNamespace(in.GetNamespace()); err != nil {
		return err
	}

	at := map[string]time.Time{}

	if i := s.node.installed(); i != nil {
		for _, p := range i.images {
			if p.namespace == in.GetNamespace() {
				at[p.name] = p.at
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(at)) {
		if err := stream.Send(&machineapi.ImageListResponse{
			Name: name, Digest: digest(name), Size: 30 << 20, CreatedAt: timestamppb.New(at[name]),
		}); err != nil {
			return err
		}
	}

	return nil
}
