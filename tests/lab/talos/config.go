package talos

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/hashicorp/go-multierror"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
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

	if warnings, err = n.validateStatic(cfg, m); err != nil {
		return nil, nil, nil, err
	}

	more, err := cfg.RuntimeValidate(n.ctx, n.state, m)
	if err != nil {
		return nil, nil, nil, err
	}

	return cfg, append(warnings, more...), nil, nil
}

// validateStatic asks the validator of Talos, and what it says of Kubernetes as the node's version would.
func (n *node) validateStatic(cfg config.Provider, m mode) ([]string, error) {
	warnings, err := cfg.Validate(m, validation.WithLocal())
	faults := multierror.Append(nil, err)

	if err == nil {
		faults = nil
	}

	if raw := cfg.RawV1Alpha1(); raw == nil || raw.MachineConfig == nil {
		return warnings, faults.ErrorOrNil()
	}

	talos, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: n.image.Version})
	if err != nil {
		return nil, err
	}

	images := map[string]string{"kubelet": cfg.K8sKubeletConfig().Image()}
	if cfg.Machine().Type().IsControlPlane() {
		c := clusterOf(cfg)
		images[apiServer], images[controllerManager] = c.APIServer().Image(), c.ControllerManager().Image()
		images[scheduler] = c.Scheduler().Image()
	}

	for _, name := range slices.Sorted(maps.Keys(images)) {
		version, err := compatibility.KubernetesVersionFromImageRef(images[name])
		if err == nil {
			err = version.SupportedWith(talos)
		}

		if err != nil {
			faults = multierror.Append(faults, fmt.Errorf("%s image is not valid: %w", name, err))
		}
	}

	return warnings, faults.ErrorOrNil()
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

	for _, setting := range unfollowed(cfg) {
		n.fw.opts.Journal.Ignore(setting + " of machine configurations")
	}

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

	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(now), container.NewV1Alpha1(wanted))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}

	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// clusterOf is what a configuration says of the cluster in the fields that every version of Talos knows: the documents
// that replace them with Talos 1.14 are not played.
func clusterOf(cfg config.Provider) *v1alpha1.ClusterConfig {
	if raw := cfg.RawV1Alpha1(); raw != nil && raw.ClusterConfig != nil {
		return raw.ClusterConfig
	}

	return &v1alpha1.ClusterConfig{}
}

// nth is the address at a place of a network.
func nth(network netip.Prefix, place int) netip.Addr {
	address := network.Addr()
	for range place {
		address = address.Next()
	}

	return address
}

func prefixTexts(prefixes []netip.Prefix) []string {
	texts := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}

	return texts
}

func argValues(arguments map[string][]string) map[string]k8s.ArgValues {
	values := map[string]k8s.ArgValues{}
	for name, list := range arguments {
		values[name] = k8s.ArgValues{Values: list}
	}

	return values
}
