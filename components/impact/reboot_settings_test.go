package impact

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
)

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
