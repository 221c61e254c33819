package kubecomponents

import (
	"slices"
	"strings"

	"github.com/blang/semver/v4"
)

// The minor versions of Kubernetes whose removed feature gates are listed.
const (
	oldestFeatures = 30
	// NewestFeatures is the last one.
	NewestFeatures = 37
)

// removedFeatures are the feature gates that a minor version of Kubernetes 1 no longer knows, and the one before does
// (Kubernetes: test/compatibility_lifecycle/reference/versioned_feature_list.yaml; up to 1.32, as talosctl
// upgrade-k8s has them).
var removedFeatures = map[uint64]string{
	30: "ExpandedDNSConfig ExperimentalHostUserNamespaceDefaultingGate IPTablesOwnershipCleanup " +
		"KubeletPodResources KubeletPodResourcesGetAllocatable MinimizeIPTablesRestore " +
		"ProxyTerminatingEndpoints RemoveSelfLink",
	31: "APIPriorityAndFairness CSINodeExpandSecret ConsistentHTTPGetHandlers " +
		"DefaultHostNetworkHostPortsInPodTemplates ServiceNodePortStaticSubrange " +
		"SkipReadOnlyValidationGCE",
	32: "CloudDualStackNodeIPs DRAControlPlaneController HPAContainerMetrics KMSv2 KMSv2KDF " +
		"LegacyServiceAccountTokenCleanUp MinDomainsInPodTopologySpread NewVolumeManagerReconstruction " +
		"NodeOutOfServiceVolumeDetach ServerSideApply ServerSideFieldValidation " +
		"StableLoadBalancerNodeSet ValidatingAdmissionPolicy ZeroLimitedNominalConcurrencyShares",
	33: "APIListChunking AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AppArmor " +
		"AppArmorFields CPUManager DisableCloudProviders DisableKubeletCloudCredentialProviders " +
		"EfficientWatchResumption JobPodFailurePolicy KubeProxyDrainingTerminatingNodes " +
		"PDBUnhealthyPodEvictionPolicy PersistentVolumeLastPhaseTransitionTime RemainingItemCount " +
		"VolumeCapacityPriority WatchBookmark",
	34: "DevicePluginCDIDevices ElasticIndexedJob LegacySidecarContainers PodDisruptionConditions " +
		"StatefulSetStartOrdinal",
	35: "AllowServiceLBStatusOnNonLB ComponentSLIs CronJobsScheduledAnnotation LoadBalancerIPMode " +
		"PodIndexLabel ProbeHostPodSecurityStandards SizeMemoryBackedVolumes StatefulSetAutoDeletePVC " +
		"StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks " +
		"UserNamespacesPodSecurityStandards",
	36: "CSIMigrationPortworx HonorPVReclaimPolicy InPlacePodVerticalScalingAllocatedStatus " +
		"InTreePluginPortworxUnregister MemoryManager ServiceTrafficDistribution " +
		"StructuredAuthorizationConfiguration TopologyAwareHints WatchFromStorageWithoutResourceVersion",
	37: "APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource " +
		"AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache CPUCFSQuotaPeriod " +
		"ConsistentListFromCache GangScheduling JobBackoffLimitPerIndex JobPodReplacementPolicy " +
		"JobSuccessPolicy LogarithmicScaleDown OrderedNamespaceDeletion PodLifecycleSleepAction " +
		"PodLifecycleSleepActionAllowZero PreventStaticPodAPIReferences RelaxedDNSSearchValidation " +
		"ResilientWatchCacheInitialization RetryGenerateName RuntimeClassInImageCriAPI " +
		"SchedulerQueueingHints SidecarContainers StreamingCollectionEncodingToJSON " +
		"StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration " +
		"WorkloadAwarePreemption",
}

// FeatureRemoved says in which minor version of Kubernetes a feature gate was removed, if that is not after the given
// version. A component does not start with a gate that it does not know.
func FeatureRemoved(name, kubernetes string) (minor uint64, removed bool) {
	version, err := semver.ParseTolerant(kubernetes)
	if err != nil {
		return 0, false
	}

	for minor = oldestFeatures; minor <= min(version.Minor, NewestFeatures); minor++ {
		if slices.Contains(strings.Fields(removedFeatures[minor]), name) {
			return minor, true
		}
	}

	return 0, false
}

// FeaturesFlag is the flag with the feature gates of a component.
const FeaturesFlag = "feature-gates"

// Features are the names in the value of that flag.
func Features(value string) []string {
	var names []string

	for pair := range strings.SplitSeq(value, ",") {
		name, _, _ := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}

	return names
}
