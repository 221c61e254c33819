package machineconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v3"
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

// checkKinds checks that the provider knows the documents of a patch.
func checkKinds(patch configpatcher.Patch, text string) error {
	merge, ok := patch.(configpatcher.StrategicMergePatch)
	if !ok {
		return nil
	}

	for _, doc := range merge.Documents() {
		if !slices.Contains(providerKinds, doc.Kind()) {
			return fmt.Errorf("%s was added after Talos 1.12, and the Talos provider does not support it; use the "+
				"settings of "+
				"Talos 1.12, which later versions take, too", doc.Kind())
		}
	}

	return checkLaterSettings(text)
}

// laterSettings are those that came after Talos 1.12 into documents that the provider knows, by the kind of the
// document. They stand for all that is below them; "[]" is each element of a list.
var laterSettings = map[string][]string{
	"DHCPv4Config":         {"ignoreRoutes"},
	"ExistingVolumeConfig": {"mount.disableAccessTime", "mount.secure", "scrub", "trim"},
	"OOMConfig":            {"strictCgroupClassOrdering"},
	"RawVolumeConfig":      {"encryption.allowDiscards"},
	"ResolverConfig":       {"hostDNS", "nameservers[].protocol", "nameservers[].tlsServerName"},
	"SwapVolumeConfig":     {"encryption.allowDiscards"},
	"TimeSyncConfig":       {"ntp.useNTS"},
	"UserVolumeConfig":     {"encryption.allowDiscards", "filesystem.xfs", "mount", "scrub", "trim"},
	"VolumeConfig":         {"encryption.allowDiscards", "filesystem", "mount", "scrub", "trim"},
	v1alpha1Kind: {
		"cluster.network.cni.flannel.kubeNetworkPoliciesEnabled",
		"machine.network.kubespan.filters.excludeAdvertisedNetworks",
	},
}

// v1alpha1Kind is the kind of the document that does not say it.
const v1alpha1Kind = "v1alpha1"

// checkLaterSettings checks that the provider knows the settings of a patch. What is said may be what holds anyway, so
// the text is read.
func checkLaterSettings(text string) error {
	var errs []error

	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc map[string]any
		if decoder.Decode(&doc) != nil {
			return errors.Join(errs...) // the end, or what others check
		}

		kind, ok := doc["kind"].(string)
		if !ok {
			kind = v1alpha1Kind
		}

		for _, path := range laterSettings[kind] {
			if states(doc, strings.Split(path, ".")) {
				errs = append(errs, fmt.Errorf("%s of %s was added after Talos 1.12, and the Talos provider does "+
					"not support it; "+
					"leave it out", path, kind))
			}
		}
	}
}

// states says whether a document states a setting.
func states(doc any, path []string) bool {
	if len(path) == 0 {
		return true
	}

	fields, ok := doc.(map[string]any)
	if !ok {
		return false
	}

	name, list := strings.CutSuffix(path[0], "[]")

	value, ok := fields[name]
	if !ok || !list {
		return ok && states(value, path[1:])
	}

	elements, _ := value.([]any)

	return slices.ContainsFunc(elements, func(e any) bool { return states(e, path[1:]) })
}
