package changes

import (
	"strconv"
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// TestWithRunningKubernetes: what is rebooted into has the versions of Kubernetes that run, and all else that is
// wanted.
func TestWithRunningKubernetes(t *testing.T) {
	of := func(version, swappiness string, role spec.Role) talosconfig.Provider {
		text := "version: v1alpha1\nmachine: { type: " + string(role) + ", kubelet: { image: ghcr.io/siderolabs/kubelet:" +
			version +
			" }, sysctls: { vm.swappiness: " + strconv.Quote(swappiness) + " } }\ncluster: { controlPlane: { endpoint: " +
			"https://10.0.0.1:6443 }"

		if role == spec.RoleControlPlane {
			for key, image := range map[string]string{
				"apiServer": "kube-apiserver", "controllerManager": "kube-controller-manager", "scheduler": "kube-scheduler",
				"proxy": "kube-proxy",
			} {
				text += ", " + key + ": { image: registry.k8s.io/" + image + ":" + version + " }"
			}
		}

		c, err := machineconfig.Applied(text+" }\n", nil)
		require.NoError(t, err)

		return c
	}

	for _, role := range []spec.Role{spec.RoleControlPlane, spec.RoleWorker} {
		kept, err := withRunningKubernetes(nodeChange{node: plan.Node{Role: role}, wanted: of("v1.34.2", "1", role)},
			of("v1.33.6", "0", role))
		require.NoError(t, err)

		differ, err := impact.Settings(of("v1.33.6", "1", role), kept)
		require.NoError(t, err)
		assert.Empty(t, differ)
	}
}

func TestRuns(t *testing.T) {
	of := func(image string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"image": image}},
		}}}}}
	}

	assert.True(t, runsImage(of("a:1"), "a:1"))
	assert.False(t, runsImage(of("a:1"), "a:2"))
	assert.False(t, runsImage(&unstructured.Unstructured{Object: map[string]any{"spec": "x"}}, "a:1"))
}
