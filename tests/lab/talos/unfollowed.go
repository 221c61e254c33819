package talos

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"go.yaml.in/yaml/v3"
)

// followed are the settings that nodes of the lab do something about, by document and path; a whole block where only
// its name stands. Those of the second list are in every configuration, and nothing outside a node shows them.
var followed = append(strings.Fields(`
	machine.type machine.token machine.ca machine.acceptedCAs machine.certSANs machine.network machine.install machine.sysctls
	machine.nodeLabels machine.nodeAnnotations machine.nodeTaints
	machine.kubelet.image machine.kubelet.extraArgs machine.kubelet.registerWithFQDN machine.kubelet.nodeIP
	machine.kubelet.skipNodeRegistration machine.kubelet.extraConfig.registerWithTaints
	machine.features.hostDNS machine.features.kubePrism machine.features.stableHostname
	cluster.id cluster.secret cluster.controlPlane cluster.clusterName cluster.network cluster.token cluster.ca cluster.acceptedCAs
	cluster.apiServer.image cluster.apiServer.extraArgs cluster.apiServer.certSANs
	cluster.controllerManager.image cluster.controllerManager.extraArgs cluster.scheduler.image cluster.scheduler.extraArgs
	cluster.proxy cluster.discovery cluster.etcd.image cluster.etcd.ca cluster.coreDNS cluster.extraManifests
	cluster.extraManifestHeaders cluster.inlineManifests cluster.adminKubeconfig cluster.allowSchedulingOnControlPlanes
	NetworkDefaultActionConfig NetworkRuleConfig ExtensionServiceConfig HostnameConfig LinkConfig LinkAliasConfig DHCPv4Config
	Layer2VIPConfig ResolverConfig StaticHostConfig DiscoveryServiceConfig DiscoveryIdentityConfig
`), strings.Fields(`
	version debug persist
	machine.features.rbac machine.features.apidCheckExtKeyUsage machine.features.diskQuotaSupport
	machine.features.nodeAddressSortAlgorithm machine.features.kubernetesTalosAPIAccess
	machine.kubelet.defaultRuntimeSeccompProfileEnabled machine.kubelet.disableManifestsDirectory
	cluster.aescbcEncryptionSecret cluster.secretboxEncryptionSecret cluster.aggregatorCA cluster.serviceAccount
	cluster.etcd.advertisedSubnets cluster.apiServer.disablePodSecurityPolicy cluster.apiServer.admissionControl cluster.apiServer.auditPolicy
`)...)

// unfollowed are the settings of a configuration that nodes of the lab take and do nothing about.
func unfollowed(cfg config.Provider) []string {
	var found []string

	docs := yaml.NewDecoder(strings.NewReader(string(configBytes(cfg))))

	for {
		var doc yaml.Node
		if docs.Decode(&doc) != nil {
			break // Talos' own loader has read all of it
		}

		found = append(found, unfollowedIn(doc.Content[0])...)
	}

	slices.Sort(found)

	return slices.Compact(found)
}

func unfollowedIn(doc *yaml.Node) []string {
	for i := 0; i+1 < len(doc.Content); i += 2 {
		if doc.Content[i].Value == "kind" {
			if kind := doc.Content[i+1].Value; !slices.Contains(followed, kind) {
				return []string{"documents " + kind}
			}

			return nil
		}
	}

	return unfollowedBelow(doc, "")
}

// unfollowedBelow goes down as far as something below is followed.
func unfollowedBelow(block *yaml.Node, at string) []string {
	var found []string

	for i := 0; i+1 < len(block.Content); i += 2 {
		path := strings.TrimPrefix(at+"."+block.Content[i].Value, ".")

		switch {
		case slices.Contains(followed, path):
		case slices.ContainsFunc(followed, func(f string) bool { return strings.HasPrefix(f, path+".") }):
			found = append(found, unfollowedBelow(block.Content[i+1], path)...)
		case block.Content[i+1].Kind == yaml.ScalarNode || len(block.Content[i+1].Content) > 0:
			found = append(found, path)
		}
	}

	return found
}
