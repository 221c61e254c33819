package kubecomponents

import (
	"slices"
	"strings"
)

// NewestAdmission is the last minor version of Kubernetes whose admission plugins are listed.
const NewestAdmission = 37

// The admission plugins of Kubernetes 1.28 to 1.37 (Kubernetes: pkg/kubeapiserver/options/plugins.go). Those that are
// enabled need no flag.
var (
	enabledPlugins = strings.Fields(`
		CertificateApproval CertificateSigning CertificateSubjectRestriction ClusterTrustBundleAttest DefaultIngressClass
		DefaultStorageClass DefaultTolerationSeconds JobValidation LimitRanger MutatingAdmissionPolicy
		MutatingAdmissionWebhook NamespaceLifecycle NodeDeclaredFeatureValidator PersistentVolumeClaimResize
		PodGroupProtection PodGroupWorkloadExists PodResizeValidator PodSecurity PodTopologyLabels Priority ResourceQuota
		RuntimeClass ServiceAccount StorageObjectInUseProtection TaintNodesByCondition ValidatingAdmissionPolicy
		ValidatingAdmissionWebhook`)
	otherPlugins = strings.Fields(`
		AlwaysAdmit AlwaysDeny AlwaysPullImages DenyServiceExternalIPs EventRateLimit ExtendedResourceToleration
		ImagePolicyWebhook LimitPodHardAntiAffinityTopology NamespaceAutoProvision NamespaceExists NodeRestriction
		OwnerReferencesPermissionEnforcement PersistentVolumeLabel PodNodeSelector PodTolerationRestriction
		SecurityContextDeny`)
)

// PluginKnown says that a name is that of an admission plugin.
func PluginKnown(name string) bool {
	return slices.Contains(enabledPlugins, name) || slices.Contains(otherPlugins, name)
}
