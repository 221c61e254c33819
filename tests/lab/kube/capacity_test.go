package kube_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"talos-proxmox/tests/lab/kube"
)

// TestCapacity: a node has less than its VM, and pods have less than the node.
func TestCapacity(t *testing.T) {
	capacity, allocatable := kube.Capacity{
		Cores: 4, MemoryMiB: 4096, Disk: 38 << 30, Reserved: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("612Mi"),
		},
	}.Lists()

	assert.Equal(t, "4", capacity.Cpu().String())
	assert.Equal(t, "4040294Ki", capacity.Memory().String())
	assert.Equal(t, "38Gi", capacity.StorageEphemeral().String())
	assert.Equal(t, "110", capacity.Pods().String())
	assert.Equal(t, "3950m", allocatable.Cpu().String())
	assert.Equal(t, "3413606Ki", allocatable.Memory().String())
	assert.Contains(t, capacity, corev1.ResourceName("hugepages-2Mi"))
}
