package talos

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// loadConfig reads machine configuration with Talos' own loader. The decoder is strict: it refuses keys it does not
// know.
func loadConfig(data []byte) (config.Provider, error) { return configloader.NewFromBytes(data) }

// configBytes is the configuration as it was sent.
func configBytes(cfg config.Provider) []byte {
	data, err := cfg.Bytes()
	if err != nil {
		panic(err) // it was loaded from bytes
	}

	return data
}

// mode is the runtime mode that configuration is validated for (Talos: runtime/mode.go).
type mode struct {
	name     string
	requires bool
}

func (m mode) String() string        { return m.name }
func (m mode) RequiresInstall() bool { return m.requires }
func (m mode) InContainer() bool     { return false }

// mode returns the platform's mode. A running node that is installed does not ask for machine.install any more; in
// maintenance mode metal always does (Talos: v1alpha1_server.go modeWrapper, maintenance/server.go).
func (n *node) mode(installed bool) mode {
	if n.image.Platform == NoCloud {
		return mode{name: "cloud"}
	}

	return mode{name: "metal", requires: !installed}
}

// validate says whether the node would accept a configuration. The error of the loader comes apart from that of the
// validator: maintenance mode reports them differently.
func (n *node) validate(data []byte, m mode) (cfg config.Provider, warnings []string, loadErr, err error) {
	if cfg, loadErr = loadConfig(data); loadErr != nil {
		return nil, nil, loadErr, nil
	}

	if warnings, err = cfg.Validate(m); err != nil {
		return nil, nil, nil, err
	}

	more, err := cfg.RuntimeValidate(n.ctx, n.state, m)
	if err != nil {
		return nil, nil, nil, err
	}

	return cfg, append(warnings, more...), nil, nil
}

// keepConfig writes a configuration to the disk, where the next boot finds it.
func (n *node) keepConfig(cfg config.Provider) {
	n.store(func(i *Installed) { i.Config = configBytes(cfg) })
	n.put(configres.NewMachineConfigWithID(cfg, configres.PersistentID))
}

// setConfig makes a configuration the active one.
func (n *node) setConfig(cfg config.Provider) {
	n.mu.Lock()
	n.cfg = cfg
	n.mu.Unlock()

	n.put(configres.NewMachineConfigWithID(cfg, configres.ActiveID))

	machineType := configres.NewMachineType()
	machineType.SetMachineType(cfg.Machine().Type())
	n.put(machineType)

	n.updateNetwork() // before anybody acts under the old name
	n.kick.notify()
}

// applicable says whether a configuration can replace the active one without a reboot (Talos: v1alpha1_runtime.go,
// CanApplyImmediate). The list below is Talos': what is on it is applied live, any other difference needs a reboot.
func applicable(now, wanted *v1alpha1.Config) error {
	if now == nil || wanted == nil {
		return errors.New("no current config")
	}

	wanted = wanted.DeepCopy()
	wanted.ConfigDebug = now.ConfigDebug
	wanted.ClusterConfig = now.ClusterConfig

	if a, b := wanted.MachineConfig, now.MachineConfig; a != nil && b != nil {
		a.MachineCA, a.MachineAcceptedCAs, a.MachineCertSANs = b.MachineCA, b.MachineAcceptedCAs, b.MachineCertSANs
		a.MachineTime, a.MachineInstall, a.MachineNetwork = b.MachineTime, b.MachineInstall, b.MachineNetwork
		a.MachineSysfs, a.MachineSysctls, a.MachineLogging = b.MachineSysfs, b.MachineSysctls, b.MachineLogging
		a.MachineControlPlane, a.MachineKubelet, a.MachineKernel = b.MachineControlPlane, b.MachineKubelet, b.MachineKernel
		a.MachineRegistries, a.MachinePods, a.MachineSeccompProfiles = b.MachineRegistries, b.MachinePods,
			b.MachineSeccompProfiles
		a.MachineNodeAnnotations, a.MachineNodeLabels, a.MachineNodeTaints = b.MachineNodeAnnotations, b.MachineNodeLabels,
			b.MachineNodeTaints

		if f, g := a.MachineFeatures, b.MachineFeatures; f != nil && g != nil {
			f.KubernetesTalosAPIAccessConfig, f.KubePrismSupport, f.HostDNSSupport = g.KubernetesTalosAPIAccessConfig,
				g.KubePrismSupport, g.HostDNSSupport
			f.ImageCacheSupport, f.FeatureNodeAddressSortAlgorithm = g.ImageCacheSupport, g.FeatureNodeAddressSortAlgorithm
		}
	}

	if reflect.DeepEqual(now, wanted) {
		return nil
	}

	diff, err := configdiff.DiffToString(container.NewV1Alpha1(now), container.NewV1Alpha1(wanted))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}

	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}
