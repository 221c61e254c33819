package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	factory "github.com/siderolabs/image-factory/pkg/constants"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/wait"
)

// System is what a node runs, by its own word.
type System struct {
	// Talos, Schematic and Platform; what it runs of Kubernetes is in its configuration.
	impact.System
	// Boot is another one after each boot.
	Boot string
	// Running says that the node has booted and nothing is being done to it; Stage is what it does otherwise.
	Running bool
	Stage   string
	// Configuration that the node runs with.
	Configuration talosconfig.Provider
	// Volumes are how the node has opened its volumes, by their ID.
	Volumes map[string]block.VolumeStatusSpec
}

// Ask asks a node what it runs.
func Ask(ctx context.Context, t Target, c Credentials) (System, error) {
	var s System

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		version, err := api.Version(ctx)
		if err != nil {
			return err
		}

		for _, m := range version.GetMessages() {
			s.Talos, s.Platform = m.GetVersion().GetTag(), m.GetPlatform().GetName()
		}

		boot, err := api.Read(ctx, "/proc/sys/kernel/random/boot_id")
		if err != nil {
			return err
		}

		id, err := io.ReadAll(boot)
		if err = errors.Join(err, boot.Close()); err != nil {
			return err
		}

		s.Boot = strings.TrimSpace(string(id))

		return s.resources(ctx, api)
	})
	if err != nil {
		return s, errors.New(brief(err))
	}

	return s, nil
}

func (s *System) resources(ctx context.Context, api *client.Client) error {
	extensions, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, api.COSI)
	if err != nil {
		return err
	}

	for e := range extensions.All() {
		if m := e.TypedSpec().Metadata; m.Name == factory.SchematicIDExtensionName {
			s.Schematic = m.Version
		}
	}

	if s.SecureBoot, err = secureBoot(ctx, api); err != nil {
		return err
	}

	machine, err := safe.StateGetByID[*runtime.MachineStatus](ctx, api.COSI, runtime.MachineStatusID)
	if err != nil {
		return err
	}

	s.Stage = machine.TypedSpec().Stage.String()
	s.Running = machine.TypedSpec().Stage == runtime.MachineStageRunning

	applied, err := safe.StateGetByID[*config.MachineConfig](ctx, api.COSI, config.ActiveID)
	if err != nil {
		return err
	}

	s.Configuration = applied.Provider()
	s.Volumes, err = volumes(ctx, api)

	return err
}

// volumes are the states of a machine's volumes, by their ID.
func volumes(ctx context.Context, api *client.Client) (map[string]block.VolumeStatusSpec, error) {
	found, err := safe.StateListAll[*block.VolumeStatus](ctx, api.COSI)
	if err != nil {
		return nil, err
	}

	all := map[string]block.VolumeStatusSpec{}
	for v := range found.All() {
		all[v.Metadata().ID()] = *v.TypedSpec()
	}

	return all, nil
}

// secureBoot says whether a machine was booted with SecureBoot; nil when it does not know.
func secureBoot(ctx context.Context, api *client.Client) (*bool, error) {
	security, err := safe.StateGetByID[*runtime.SecurityState](ctx, api.COSI, runtime.SecurityStateID)

	switch {
	case err == nil:
		return &security.TypedSpec().SecureBoot, nil
	case state.IsNotFoundError(err):
		return nil, nil //nolint:nilnil // nothing is an answer
	default:
		return nil, err
	}
}

// RejectedError is what a node says of a configuration that it refuses. Asking again does not change that.
type RejectedError struct{ Words string }

func (e RejectedError) Error() string { return "it refuses its configuration: " + e.Words }

// NeedsReboot asks a node whether it takes a configuration only with a reboot. Nothing is applied. The error is a
// RejectedError where the node does not take the configuration at all. From Talos 1.14 on, nodes take all without, and
// do not say what waits for a reboot: impact.WaitsForReboot does.
func NeedsReboot(ctx context.Context, t Target, c Credentials, configuration []byte) (bool, error) {
	var reboots bool

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		reply, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_AUTO, DryRun: true,
		})
		if err != nil {
			return err
		}

		for _, m := range reply.GetMessages() {
			reboots = reboots || m.GetMode() == machineapi.ApplyConfigurationRequest_REBOOT
		}

		return nil
	})
	switch client.StatusCode(err) {
	case codes.OK:
		return reboots, nil
	case codes.InvalidArgument, codes.Unknown:
		// Talos says InvalidArgument of what it validates, and nothing in particular of what it cannot read.
		return false, RejectedError{brief(err)}
	default:
		return false, fmt.Errorf("%s does not check the configuration: %s", t.Name, brief(err)) // its words are enough
	}
}

// ApplyAndReboot gives a node a configuration and has it reboot. The request is accepted when it returns, not done.
// From Talos 1.14 on that takes two requests. Between them the configuration is staged, not active, so that a run which
// comes to an end there finds the change again.
func ApplyAndReboot(ctx context.Context, t Target, c Credentials, configuration []byte) error {
	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		_, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_REBOOT, // before Talos 1.14
		})
		if client.StatusCode(err) != codes.Unimplemented {
			return err
		}

		if _, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_STAGED,
		}); err != nil {
			return err
		}

		return api.Reboot(ctx)
	})

	return notTaken(t.Name, err)
}

// ApplyStaged gives a node a configuration for its next boot.
func ApplyStaged(ctx context.Context, t Target, c Credentials, configuration []byte) error {
	return apply(ctx, t, c, configuration, machineapi.ApplyConfigurationRequest_STAGED)
}

// ApplyLive gives a node a configuration that it takes without a reboot, or not at all.
func ApplyLive(ctx context.Context, t Target, c Credentials, configuration []byte) error {
	return apply(ctx, t, c, configuration, machineapi.ApplyConfigurationRequest_NO_REBOOT)
}

func apply(ctx context.Context, t Target, c Credentials, configuration []byte,
	mode machineapi.ApplyConfigurationRequest_Mode,
) error {
	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		_, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: mode,
		})

		return err
	})

	return notTaken(t.Name, err)
}

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

// CheckServices checks that etcd, the kubelet and the API server are up on a node; on a worker, the kubelet.
func CheckServices(ctx context.Context, t Target, c Credentials, controlPlane bool) error {
	if controlPlane {
		nodes, err := open(ctx, []Target{t}, c)
		if err != nil {
			return err
		}
		defer nodes.close()

		return nodes.missing(ctx)
	}

	err := with(ctx, t, c, func(ctx context.Context, api *client.Client) error {
		found, err := services(ctx, api)
		if err == nil && !found["kubelet"].up() {
			return wait.For("%s: kubelet (%s)", t.Name, found["kubelet"])
		}

		return err
	})
	if err != nil && !wait.NotYet(err) {
		return wait.For("%s: the Talos API (%s)", t.Name, brief(err))
	}

	return err
}
