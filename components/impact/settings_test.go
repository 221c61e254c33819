package impact

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, text string) config.Provider {
	t.Helper()

	c, err := configloader.NewFromBytes([]byte(text))
	require.NoError(t, err)

	return c
}

const configured = `version: v1alpha1
machine:
  type: controlplane
  token: abcdef.0123456789abcdef
  kubelet: { image: "ghcr.io/siderolabs/kubelet:v1.33.6" }
  install:
    disk: /dev/sda
    image: "factory.talos.dev/metal-installer/aa:v1.11.6"
    extraKernelArgs: [siderolink.api=https://omni.lan:8090?jointoken=0123456789abcdef]
  sysctls: { net.core.somaxconn: "1024", vm.swappiness: "1" }
  env: { http_proxy: "http://proxy" }
  files: [{ path: /var/x, content: one, permissions: 0o600, op: create }]
cluster:
  controlPlane: { endpoint: "https://10.0.0.11:6443" }
  apiServer: { certSANs: [10.0.0.11] }
---
apiVersion: v1alpha1
kind: ExtensionServiceConfig
name: tailscale
environment: [TS_AUTHKEY=one]
---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: one
auto: off
`

const changed = `version: v1alpha1
machine:
  type: controlplane
  token: abcdef.fedcba9876543210
  kubelet: { image: "ghcr.io/siderolabs/kubelet:v1.34.2" }
  install:
    disk: /dev/sda
    image: "factory.talos.dev/metal-installer/aa:v1.12.4"
    extraKernelArgs: [siderolink.api=https://omni.lan:8090?jointoken=fedcba9876543210]
  sysctls: { net.core.somaxconn: "2048" }
  env: { http_proxy: "http://other" }
  files: [{ path: /var/x, content: two, permissions: 0o600, op: create }]
cluster:
  controlPlane: { endpoint: "https://10.0.0.11:6443" }
  apiServer: { certSANs: [10.0.0.11, 10.0.0.12] }
---
apiVersion: v1alpha1
kind: ExtensionServiceConfig
name: tailscale
environment: [TS_AUTHKEY=two]
---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: two
auto: off
`

// TestSettings: what differs is named, and no secret is shown, neither one that Talos knows nor one that only its owner
// does.
func TestSettings(t *testing.T) {
	found, err := Settings(load(t, configured), load(t, changed))
	require.NoError(t, err)

	var lines []string
	for _, s := range found {
		lines = append(lines, s.String())
	}

	assert.Equal(t, []string{
		"ExtensionServiceConfig[tailscale].environment[0]: changes (secret)",
		"HostnameConfig.hostname: one becomes two",
		"cluster.apiServer.certSANs[1]: 10.0.0.12 (new)",
		"machine.env.http_proxy: changes (secret)",
		"machine.files[0].content: changes (secret)",
		"machine.install.extraKernelArgs[0]: changes (secret)",
		"machine.install.image: factory.talos.dev/metal-installer/aa:v1.11.6 becomes " +
			"factory.talos.dev/metal-installer/aa:v1.12.4",
		"machine.kubelet.image: ghcr.io/siderolabs/kubelet:v1.33.6 becomes ghcr.io/siderolabs/kubelet:v1.34.2",
		"machine.sysctls.net.core.somaxconn: 1024 becomes 2048",
		"machine.sysctls.vm.swappiness: 1 (goes)",
		"machine.token: changes (secret)",
	}, lines)

	for _, line := range lines {
		for _, secret := range []string{"0123456789abcdef", "fedcba9876543210", "TS_AUTHKEY", "http://", "two)"} {
			assert.NotContains(t, line, secret)
		}
	}

	same, err := Settings(load(t, configured), load(t, configured))
	require.NoError(t, err)
	assert.Empty(t, same)
}

func TestWaitsForReboot(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		setting Setting
		want    bool
	}{
		"a variable":             {"v1.14.1", Setting{Path: "machine.env.NO_PROXY", Secret: true}, true},
		"said by the node":       {"v1.13.9", Setting{Path: "machine.env.NO_PROXY", Secret: true}, false},
		"an argument of etcd":    {"v1.14.1", Setting{Path: "cluster.etcd.extraArgs.a", Secret: true}, true},
		"an argument of another": {"v1.14.1", Setting{Path: "cluster.apiServer.extraArgs.a", Secret: true}, false},
		"a sysctl":               {"v1.14.1", Setting{Path: "machine.sysctls.a", After: "b"}, false},
		"a module":               {"v1.14.1", Setting{Path: "machine.kernel.modules[1].name", After: "zfs"}, false},
		"another module":         {"v1.14.1", Setting{Path: "machine.kernel.modules[1].name", Before: "a", After: "b"}, true},
		"parameters of a module": {"v1.14.1", Setting{Path: "machine.kernel.modules[0].parameters[0]", After: "b"}, true},
		"variables of their own": {"v1.14.1", Setting{Path: "EnvironmentConfig.variables.A", Secret: true}, true},
		"the key of a volume":    {"v1.14.1", Setting{Path: "VolumeConfig[STATE].encryption.keys[0].slot", After: "1"}, true},
		"the size of a volume":   {"v1.14.1", Setting{Path: "VolumeConfig[STATE].provisioning.maxSize", After: "1"}, false},
		"a login": {
			"v1.13.9", Setting{Path: "machine.registries.config.registry.lan:5000.auth.password", Secret: true}, true,
		},
		"a login of its own":        {"v1.12.4", Setting{Path: "RegistryAuthConfig[registry.lan].password", Secret: true}, true},
		"a document without a name": {"v1.12.4", Setting{Path: "RegistryAuthConfig.kind", After: "a"}, true},
		"a login, later":            {"v1.14.1", Setting{Path: "RegistryAuthConfig[registry.lan].password", Secret: true}, false},
		"a login in the older form, later": {
			"v1.14.1", Setting{Path: "machine.registries.config.a.lan.auth.username", After: "b"}, false,
		},
		"the CA of a registry": {
			"v1.13.9", Setting{Path: "machine.registries.config.a.auth.lan.tls.ca", Secret: true}, false,
		},
		"a mirror":                {"v1.13.9", Setting{Path: "machine.registries.mirrors.a.auth.endpoints[0]", After: "b"}, false},
		"certificates":            {"v1.13.9", Setting{Path: "TrustedRootsConfig[a].certificates", Secret: true}, true},
		"certificates, later":     {"v1.14.1", Setting{Path: "TrustedRootsConfig[a].certificates", Secret: true}, true},
		"an unknown version":      {"main", Setting{Path: "TrustedRootsConfig[a].certificates", Secret: true}, false},
		"what begins like a type": {"v1.14.1", Setting{Path: "machine.typed", After: "1"}, false},
	} {
		assert.Equal(t, c.want, WaitsForReboot(c.version, []Setting{c.setting}), name)
	}
}

// TestEachSettingIsKnown: a setting that Talos adds is either one that waits for a reboot, or one that takes effect at
// once. Whoever moves to a later version of Talos' library finds it here, and asks Talos' documentation.
func TestEachSettingIsKnown(t *testing.T) {
	atOnce := []string{
		"version", "debug",
		"machine.acceptedCAs", "machine.baseRuntimeSpecOverrides", "machine.ca", "machine.certSANs", "machine.controlPlane",
		"machine.install", "machine.kubelet", "machine.logging", "machine.network", "machine.nodeAnnotations",
		"machine.nodeLabels", "machine.nodeTaints", "machine.pods", "machine.registries", "machine.seccompProfiles",
		"machine.sysctls", "machine.sysfs", "machine.time", "machine.udev",
		"machine.features.hostDNS", "machine.features.imageCache", "machine.features.kubePrism",
		"machine.features.kubernetesTalosAPIAccess", "machine.features.nodeAddressSortAlgorithm",
		"cluster.acceptedCAs", "cluster.adminKubeconfig", "cluster.aescbcEncryptionSecret", "cluster.aggregatorCA",
		"cluster.allowSchedulingOnControlPlanes", "cluster.allowSchedulingOnMasters", "cluster.apiServer", "cluster.ca",
		"cluster.clusterName", "cluster.controlPlane", "cluster.controllerManager", "cluster.coreDNS", "cluster.discovery",
		"cluster.externalCloudProvider", "cluster.extraManifestHeaders", "cluster.extraManifests", "cluster.id",
		"cluster.inlineManifests", "cluster.network", "cluster.proxy", "cluster.scheduler", "cluster.secret",
		"cluster.secretboxEncryptionSecret", "cluster.serviceAccount", "cluster.token",
	}

	var all []string

	for _, path := range append(append(keys("", v1alpha1.Config{}), keys("machine.", v1alpha1.MachineConfig{})...),
		append(keys("machine.features.", v1alpha1.FeaturesConfig{}), keys("cluster.", v1alpha1.ClusterConfig{})...)...) {
		if path != "machine" && path != "cluster" && path != "machine.features" {
			all = append(all, path)
		}
	}

	for _, path := range all {
		assert.NotEqual(t, slices.Contains(atOnce, path), WaitsForReboot("v1.14.0", []Setting{{Path: path, Before: "a"}}),
			"%s waits for a reboot, or it does not", path)
	}

	for _, path := range atOnce {
		assert.Contains(t, all, path, "Talos knows it no more")
	}
}

// keys are the names of the fields of a struct of Talos', below a path.
func keys(below string, of any) []string {
	var found []string

	for i := range reflect.TypeOf(of).NumField() {
		if name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("yaml"), ","); name != "" && name != "-" {
			found = append(found, below+name)
		}
	}

	return found
}
