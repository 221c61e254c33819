package machineconfig

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
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
func checkKinds(patch configpatcher.Patch) error {
	merge, ok := patch.(configpatcher.StrategicMergePatch)
	if !ok {
		return nil
	}

	for _, doc := range merge.Documents() {
		if !slices.Contains(providerKinds, doc.Kind()) {
			return fmt.Errorf("%s came after Talos 1.12, and the Talos provider does not know it; use the settings of "+
				"Talos 1.12, which later versions take, too", doc.Kind())
		}

		if laterField(doc) {
			return fmt.Errorf("mount of %s came after Talos 1.12, and the Talos provider does not know it; leave it out",
				doc.Kind())
		}
	}

	return nil
}

// laterField says whether a volume states how it is mounted.
func laterField(doc config.Document) bool {
	switch v := doc.(type) {
	case *block.VolumeConfigV1Alpha1:
		return !reflect.ValueOf(v.MountSpec).IsZero()
	case *block.UserVolumeConfigV1Alpha1:
		return !v.MountSpec.IsZero()
	default:
		return false
	}
}
