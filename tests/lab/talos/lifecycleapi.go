package talos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// since113 are the services that Talos has from 1.13 on.
var since113 = []string{"/machine.ImageService/", "/machine.LifecycleService/"}

// tooOld says whether a node's Talos does not have a method yet.
func (n *node) tooOld(method string) bool {
	return !n.atLeast(13) && slices.ContainsFunc(since113,
		func(service string) bool { return strings.HasPrefix(method, service) })
}

// registerLifecycle registers the services of Talos 1.13 and later.
func (n *node) registerLifecycle(s *grpc.Server) {
	if n.atLeast(13) {
		machineapi.RegisterImageServiceServer(s, &imageService{node: n})
		machineapi.RegisterLifecycleServiceServer(s, &lifecycleService{node: n})
	}
}

// instance checks an instance of containerd that a client names (Talos: internal/app/internal/ctrhelper).
func instance(in *common.ContainerdInstance) error {
	driver, namespace := in.GetDriver(), in.GetNamespace()

	switch {
	case driver != common.ContainerDriver_CONTAINERD && driver != common.ContainerDriver_CRI:
		return status.Errorf(codes.InvalidArgument, "invalid containerd driver %s", driver)
	case namespace != common.ContainerdNamespace_NS_CRI && namespace != common.ContainerdNamespace_NS_SYSTEM:
		return status.Errorf(codes.InvalidArgument, "invalid containerd namespace %s", namespace)
	case driver == common.ContainerDriver_CONTAINERD && namespace == common.ContainerdNamespace_NS_CRI:
		return status.Error(codes.InvalidArgument, "cannot use CRI namespace with containerd driver")
	default:
		return nil
	}
}

// imageService fetches images (Talos: internal/app/images).
type imageService struct {
	machineapi.UnimplementedImageServiceServer

	node *node
}

// Pull fetches an image, and ends with its name.
func (s *imageService) Pull(in *machineapi.ImageServicePullRequest,
	stream grpc.ServerStreamingServer[machineapi.ImageServicePullResponse],
) error {
	if err := instance(in.GetContainerd()); err != nil {
		return err
	}

	err := s.node.pull(stream.Context(), in.GetContainerd().GetNamespace(), in.GetImageRef())

	switch {
	case errors.Is(err, errImageNotFound):
		return status.Errorf(codes.NotFound, "error pulling image: %s", err)
	case err != nil:
		return err
	}

	named, err := reference.ParseDockerRef(in.GetImageRef())
	if err != nil {
		return err
	}

	name := named.String()
	if _, pinned := named.(reference.Canonical); !pinned {
		name = named.Name() + "@" + digest(name)
	}

	return stream.Send(&machineapi.ImageServicePullResponse{
		Response: &machineapi.ImageServicePullResponse_Name{Name: name},
	})
}

// digest is that of an image.
func digest(name string) string {
	sum := sha256.Sum256([]byte(name))

	return "sha256:" + hex.EncodeToString(sum[:])
}

// lifecycleService installs systems (Talos: internal/app/lifecycle).
type lifecycleService struct {
	machineapi.UnimplementedLifecycleServiceServer

	node *node
}

// Upgrade runs an installer that was pulled before. What runs on the node goes on: it boots into the new system when it
// reboots. Unlike the call of MachineService, it does not ask how etcd is.
func (s *lifecycleService) Upgrade(in *machineapi.LifecycleServiceUpgradeRequest,
	stream grpc.ServerStreamingServer[machineapi.LifecycleServiceUpgradeResponse],
) error {
	n, ref := s.node, in.GetSource().GetImageName()

	if !n.installing.TryLock() {
		return status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")
	}
	defer n.installing.Unlock()

	if n.installed() == nil {
		return status.Error(codes.FailedPrecondition, "machine is not installed")
	}

	if ref == "" {
		return status.Error(codes.InvalidArgument, "installer image name is required")
	}

	if err := instance(in.GetContainerd()); err != nil {
		return err
	}

	named, err := reference.ParseDockerRef(ref)
	if err != nil || !n.hasImage(in.GetContainerd().GetNamespace(), named.String()) {
		return status.Errorf(codes.Internal, "upgrade failed: installer image %q not found in containerd store: %v", ref,
			errImageNotFound)
	}

	image, err := n.installer(ref)
	if err != nil {
		return status.Errorf(codes.Internal, "upgrade failed: %v", err)
	}

	say := func(p *machineapi.LifecycleServiceInstallProgress) error {
		return stream.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: p})
	}

	n.fw.history.note(n.name(), Installing, n.image.describe()+" to "+image.describe())

	if err := say(&machineapi.LifecycleServiceInstallProgress{
		Response: &machineapi.LifecycleServiceInstallProgress_Message{Message: "running Talos installer " + image.Version + "\n"},
	}); err != nil {
		return err
	}

	if !n.wait("install", n.fw.opts.Latencies.Install) {
		return status.Error(codes.Unavailable, "the power is gone")
	}

	if err := stream.Context().Err(); err != nil {
		return status.FromContextError(err).Err() // it ends with its client, and the node keeps what it had
	}

	code := int32(0)

	if err := n.runInstaller(image); err != nil {
		n.fw.history.note(n.name(), UpgradeFailed, err.Error())

		code = 1
	}

	return say(&machineapi.LifecycleServiceInstallProgress{
		Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: code},
	})
}

// installer is what an installer that was pulled would install.
func (n *node) installer(ref string) (*Image, error) {
	image, err := n.installerImage(ref)
	if err != nil {
		return nil, err
	}

	image.KernelArgs = append(image.KernelArgs, n.config().Machine().Install().ExtraKernelArgs()...)

	return &image, nil
}

// pullInstaller fetches an installer and returns what it would install.
func (n *node) pullInstaller(ctx context.Context, ref string) (*Image, error) {
	if err := n.pull(ctx, common.ContainerdNamespace_NS_SYSTEM, ref); err != nil {
		return nil, err
	}

	return n.installer(ref)
}
