package talosapi

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	factory "github.com/siderolabs/image-factory/pkg/constants"
	"github.com/siderolabs/talos/pkg/machinery/client"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

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
