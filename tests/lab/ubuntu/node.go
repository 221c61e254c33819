package ubuntu

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// node is what the kubelet registers.
func (k *service) node() *corev1.Node {
	c := k.config
	labels := map[string]string{
		"kubernetes.io/hostname": c.NodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"node.kubernetes.io/instance-type": "k3s",
	}

	if k.role == "controlplane" {
		for _, role := range []string{"control-plane", "etcd", "master"} {
			labels["node-role.kubernetes.io/"+role] = "true"
		}
	}

	annotations := map[string]string{"k3s.io/hostname": c.NodeName}

	if m := k.member(k.cluster); m != nil {
		annotations[memberName], annotations[memberAddress] = m.name, m.address
	}

	for _, label := range c.NodeLabel {
		key, value, _ := strings.Cut(label, "=")
		labels[key] = value
	}

	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.NodeName, Labels: labels, Annotations: annotations},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: k.version, OSImage: "Ubuntu " + k.sys.on.Version + " LTS", OperatingSystem: "linux",
				Architecture: "amd64",
				BootID:       k.sys.boot, SystemUUID: k.sys.hw.UUID,
				ContainerRuntimeVersion: "containerd://2.1.4-k3s1", KernelVersion: "6.8.0-87-generic",
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: k.address()}, {Type: corev1.NodeHostName, Address: c.NodeName},
			},
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewQuantity(int64(k.sys.hw.Cores), resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(int64(k.sys.hw.MemoryMiB)<<20, resource.BinarySI),
				corev1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
			},
		},
	}
	n.Status.Allocatable = n.Status.Capacity

	for _, taint := range c.NodeTaint {
		key, rest, _ := strings.Cut(taint, "=")
		value, effect, _ := strings.Cut(rest, ":")
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	return n
}
