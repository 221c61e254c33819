package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
)

// PullImage has a node fetch an image, within the bound.
func PullImage(ctx context.Context, t Target, c Credentials, namespace common.ContainerdNamespace, image string,
	bound time.Duration,
) error {
	err := within(ctx, bound, t, c, func(ctx context.Context, api *client.Client) error {
		err := pull(ctx, api, namespace, image)
		if client.StatusCode(err) != codes.Unimplemented {
			return err
		}

		return api.ImagePull(ctx, namespace, image) // before Talos 1.13
	})
	if err != nil {
		return fmt.Errorf("%s cannot pull %s: %s", t.Name, image, brief(err)) // its words are enough
	}

	return nil
}

// containerd is the instance of it that has the images of a namespace.
func containerd(namespace common.ContainerdNamespace) *common.ContainerdInstance {
	driver := common.ContainerDriver_CONTAINERD
	if namespace == common.ContainerdNamespace_NS_CRI {
		driver = common.ContainerDriver_CRI
	}

	return &common.ContainerdInstance{Driver: driver, Namespace: namespace}
}

// pull fetches an image by the service of Talos 1.13 and later.
func pull(ctx context.Context, api *client.Client, namespace common.ContainerdNamespace, image string) error {
	progress, err := api.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{
		Containerd: containerd(namespace), ImageRef: image,
	})

	for err == nil {
		_, err = progress.Recv()
	}

	if errors.Is(err, io.EOF) {
		return nil
	}

	return err
}

// Install has a node install a system from an installer image, within the bound. It reports whether the node reboots
// into it by itself, as those before Talos 1.13 do; others go on with what they run until Reboot.
func Install(
	ctx context.Context, t Target, c Credentials, image string, bound time.Duration,
) (rebooting bool, err error) {
	err = within(ctx, bound, t, c, func(ctx context.Context, api *client.Client) error {
		err := install(ctx, api, image)
		if client.StatusCode(err) != codes.Unimplemented {
			return err
		}

		rebooting = true
		_, err = api.UpgradeWithOptions(ctx, client.WithUpgradeImage(image)) // before Talos 1.13

		return err
	})
	if err != nil {
		return false, fmt.Errorf("%s does not upgrade to %s: %s", t.Name, image, brief(err)) // its words are enough
	}

	return rebooting, nil
}

// Reboot has a node reboot. The request is accepted when it returns, not done.
func Reboot(ctx context.Context, t Target, c Credentials) error {
	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error { return api.Reboot(ctx) })
	if err != nil {
		return fmt.Errorf("%s does not reboot: %s", t.Name, brief(err)) // its words are enough
	}

	return nil
}

// install installs a system by the service of Talos 1.13 and later.
func install(ctx context.Context, api *client.Client, image string) error {
	const namespace = common.ContainerdNamespace_NS_SYSTEM

	if err := pull(ctx, api, namespace, image); err != nil {
		return err
	}

	progress, err := api.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: containerd(namespace), Source: &machineapi.InstallArtifactsSource{ImageName: image},
	})
	if err != nil {
		return err
	}

	var reported string

	for {
		step, err := progress.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("its installer ended without a result")
		}

		if err != nil {
			return err
		}

		switch p := step.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			if line := strings.TrimSpace(p.Message); line != "" {
				reported = line
			}
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			if p.ExitCode != 0 {
				return fmt.Errorf("its installer failed with exit code %d, after %q", p.ExitCode, reported)
			}

			return nil
		}
	}
}
