package kubecomponents

import (
	"iter"
	"slices"
	"strings"

	"talos-proxmox/components/spelling"
)

// NewestAdmission is the last minor version of Kubernetes whose admission plugins are listed.
const NewestAdmission = 37

// The admission plugins of Kubernetes 1.31 to 1.37 (Kubernetes: pkg/kubeapiserver/options/plugins.go). Those that are
// enabled need no flag: Talos and K3s enable NodeRestriction themselves.
var (
	enabledPlugins = strings.Fields(`
		CertificateApproval CertificateSigning CertificateSubjectRestriction ClusterTrustBundleAttest DefaultIngressClass
		DefaultStorageClass DefaultTolerationSeconds JobValidation LimitRanger MutatingAdmissionPolicy
		MutatingAdmissionWebhook NamespaceLifecycle NodeDeclaredFeatureValidator NodeRestriction PersistentVolumeClaimResize
		PodGroupProtection PodGroupWorkloadExists PodResizeValidator PodSecurity PodTopologyLabels Priority ResourceQuota
		RuntimeClass ServiceAccount StorageObjectInUseProtection TaintNodesByCondition ValidatingAdmissionPolicy
		ValidatingAdmissionWebhook`)
	otherPlugins = strings.Fields(`
		AlwaysAdmit AlwaysDeny AlwaysPullImages DenyServiceExternalIPs EventRateLimit ExtendedResourceToleration
		ImagePolicyWebhook LimitPodHardAntiAffinityTopology NamespaceAutoProvision NamespaceExists
		OwnerReferencesPermissionEnforcement PodNodeSelector PodTolerationRestriction`)
)

// PodSecurity is the plugin that refuses pods what the level of their namespace does not allow.
const PodSecurity = "PodSecurity"

// PluginKnown says that a name is that of an admission plugin.
func PluginKnown(name string) bool {
	return slices.Contains(enabledPlugins, name) || slices.Contains(otherPlugins, name)
}

// EnablePlugins is the flag with the admission plugins that an API server runs in addition to those of Kubernetes.
const EnablePlugins = "enable-admission-plugins"

// DisabledPlugins are, of some admission plugins, those that API servers run only if that flag names them.
func DisabledPlugins(names iter.Seq[string]) []string {
	return slices.DeleteFunc(slices.Sorted(names), func(name string) bool { return !slices.Contains(otherPlugins, name) })
}

// NearestPlugin is the most similar name of an admission plugin, whatever the case of its letters; empty when none is.
func NearestPlugin(name string) string {
	known := slices.Concat(enabledPlugins, otherPlugins)

	lower := make([]string, len(known))
	for i, k := range known {
		lower[i] = strings.ToLower(k)
	}

	near := spelling.Nearest(strings.ToLower(name), lower, len(name)/2+1)
	if near == "" {
		return ""
	}

	return known[slices.Index(lower, near)]
}
