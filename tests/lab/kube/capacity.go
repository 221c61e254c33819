package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Capacity is what a machine has, as the kubelet on it finds it.
type Capacity struct {
	Cores, MemoryMiB int
	// Disk is the size in bytes of the file system that pods are on.
	Disk int64
	// Reserved is what the kubelet keeps for the system, and what pods are evicted for when no more than it is left.
	Reserved corev1.ResourceList
}

const (
	mebibyte = 1 << 20
	// kernelMiB and the fortieth part are about what a kernel takes of the memory before it counts it.
	kernelMiB, kernelPart = 48, 40
)

// Lists are what the kubelet reports of a machine, and what of it pods may have.
func (c Capacity) Lists() (capacity, allocatable corev1.ResourceList) {
	memory := int64(c.MemoryMiB)*mebibyte - int64(kernelMiB*mebibyte) - int64(c.MemoryMiB)*mebibyte/kernelPart

	capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(c.Cores), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory/1024*1024, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(c.Disk/1024*1024, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
		"hugepages-1Gi":                 *resource.NewQuantity(0, resource.DecimalSI),
		"hugepages-2Mi":                 *resource.NewQuantity(0, resource.DecimalSI),
	}
	allocatable = capacity.DeepCopy()

	for name, reserved := range c.Reserved {
		left := allocatable[name]
		left.Sub(reserved)
		allocatable[name] = left
	}

	return capacity, allocatable
}
