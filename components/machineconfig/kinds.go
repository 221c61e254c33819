package machineconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"gopkg.in/yaml.v3"
)

// providerKinds are the kinds of documents that the Talos provider of the SDK knows: those of Talos' library of 1.12,
// which it holds. It ends with an error at all others, in the middle of an update.
var providerKinds = []string{
	"BondConfig", "BridgeConfig", "DHCPv4Config", "DHCPv6Config", "DummyLinkConfig", "EthernetConfig", "EventSinkConfig",
	"ExistingVolumeConfig", "ExtensionServiceConfig", "HCloudVIPConfig", "HostnameConfig", "KmsgLogConfig",
	"KubeSpanEndpointsConfig", "Layer2VIPConfig", "LinkAliasConfig", "LinkConfig", "NetworkDefaultActionConfig",
	"NetworkRuleConfig", "OOMConfig", "PCIDriverRebindConfig", "RawVolumeConfig", "RegistryAuthConfig",
	"RegistryMirrorConfig", "RegistryTLSConfig", "ResolverConfig", "SideroLinkConfig", "StaticHostConfig",
	"SwapVolumeConfig", "TimeSyncConfig", "TrustedRootsConfig", "UserVolumeConfig", "VLANConfig", "VolumeConfig",
	"WatchdogTimerConfig", "WireguardConfig", "ZswapConfig", "v1alpha1",
}

// checkKinds holds that the provider knows the documents of a patch.
func checkKinds(patch configpatcher.Patch, text string) error {
	merge, ok := patch.(configpatcher.StrategicMergePatch)
	if !ok {
		return nil
	}

	for _, doc := range merge.Documents() {
		if !slices.Contains(providerKinds, doc.Kind()) {
			return fmt.Errorf("%s came after Talos 1.12, and the Talos provider does not know it; use the settings of "+
				"Talos 1.12, which later versions take, too", doc.Kind())
		}
	}

	return checkLaterFields(text)
}

// checkLaterFields holds that volumes do not say how they are mounted. What is said may be what holds anyway, so the
// text is read.
func checkLaterFields(text string) error {
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc struct {
			Kind  string    `yaml:"kind"`
			Mount yaml.Node `yaml:"mount"`
		}

		if decoder.Decode(&doc) != nil {
			return nil // the end, or what others judge
		}

		if (doc.Kind == block.VolumeConfigKind || doc.Kind == block.UserVolumeConfigKind) && !doc.Mount.IsZero() {
			return fmt.Errorf("mount of %s came after Talos 1.12, and the Talos provider does not know it; leave it out",
				doc.Kind)
		}
	}
}
