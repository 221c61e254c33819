package ubuntu

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/kube"
)

// checkKubelet says why the kubelet does not start (Kubernetes: cmd/kubelet/app/options, ValidateKubeletFlags;
// pkg/util/taints).
func (k *service) checkKubelet() error {
	var labels []string

	for _, label := range k.config.NodeLabel {
		key, _, _ := strings.Cut(label, "=")
		labels = append(labels, key)
	}

	if err := kube.CheckNodeLabels(labels); err != nil {
		return err
	}

	for _, taint := range k.config.NodeTaint {
		if _, _, ok := strings.Cut(taint, ":"); !ok {
			return fmt.Errorf("failed to parse kubelet flag: invalid taint spec: %v", taint)
		}
	}

	return nil
}

// label gives its roles to the Node of a server (K3s: pkg/server, setNodeLabelsAndAnnotations; pkg/etcd, metadata_controller.go).
func (k *service) label(c *cluster) error {
	if k.role != "controlplane" {
		return nil
	}

	return c.kube.UpdateNode(k.config.NodeName, func(n *corev1.Node) {
		for _, role := range []string{"control-plane", "etcd", "master"} {
			n.Labels["node-role.kubernetes.io/"+role] = "true"
		}
	})
}

// node is what the kubelet registers.
func (k *service) node() *corev1.Node {
	c := k.config
	labels := map[string]string{
		"kubernetes.io/hostname": c.NodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"node.kubernetes.io/instance-type": "k3s",
	}

	annotations := map[string]string{"k3s.io/hostname": c.NodeName}

	if m := k.member; m != nil {
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
		},
	}
	n.Status.Capacity, n.Status.Allocatable = k.capacity().Lists()

	for _, taint := range c.NodeTaint {
		rest, effect, _ := strings.Cut(taint, ":")
		key, value, _ := strings.Cut(rest, "=")
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	return n
}

// capacity is what K3s' kubelet finds. It keeps nothing for the system but a twentieth of the disk (K3s:
// pkg/daemons/agent, eviction-hard).
func (k *service) capacity() kube.Capacity {
	size := k.sys.disk.Size()

	return kube.Capacity{
		Cores: k.sys.hw.Cores, MemoryMiB: k.sys.hw.MemoryMiB, Disk: size,
		Reserved: corev1.ResourceList{
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(size/20, resource.BinarySI),
		},
	}
}
