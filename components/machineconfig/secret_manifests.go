package machineconfig

import (
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"talos-proxmox/components/machineconfig/encode"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// SecretManifests is the configuration patch with manifests that hold secrets, for control planes. It is as secret;
// empty for other pools, and without such manifests.
func SecretManifests(pool plan.PlannedPool, text string) (string, error) {
	if text == "" || pool.Role != spec.RoleControlPlane {
		return "", nil
	}

	return encode.Document(&v1alpha1.Config{ConfigVersion: "v1alpha1", ClusterConfig: &v1alpha1.ClusterConfig{
		ClusterInlineManifests: v1alpha1.ClusterInlineManifests{{
			InlineManifestName: "secrets", InlineManifestContents: text,
		}},
	}})
}
