package manifests

import (
	"strconv"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"talos-proxmox/components/plan"
)

const kubeVIPName = "kube-vip"

// kubeVIP announces the virtual address from one control plane. It is a daemon set with a service account, as kube-vip
// documents for clusters that come up without their virtual address: a static pod would want an administrator's
// kubeconfig on the host, which Talos does not have. It speaks to KubePrism, for the address that it is to announce is
// not there yet. The settings are those of "kube-vip manifest daemonset --controlplane --arp --leaderElection
// --inCluster" (v1.2.3), and of kube-vip's rbac.yaml what a control plane needs.
func kubeVIP(p *plan.Plan) []runtime.Object {
	meta := metav1.ObjectMeta{Name: kubeVIPName, Namespace: metav1.NamespaceSystem}
	labels := map[string]string{"app.kubernetes.io/name": kubeVIPName}

	env := []corev1.EnvVar{
		{Name: "vip_arp", Value: "true"},
		{Name: "port", Value: strconv.Itoa(constants.DefaultControlPlanePort)},
		{
			Name:      "vip_nodename",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
		},
		{Name: "vip_interface", Value: p.VIPInterface},
		{Name: "cp_enable", Value: "true"},
		{Name: "cp_namespace", Value: metav1.NamespaceSystem},
		{Name: "vip_leaderelection", Value: "true"},
		{Name: "vip_leasename", Value: "plndr-cp-lock"},
		{Name: "vip_leaseduration", Value: "5"},
		{Name: "vip_renewdeadline", Value: "3"},
		{Name: "vip_retryperiod", Value: "1"},
		{Name: "address", Value: p.VIP.String()},
	}

	return []runtime.Object{
		&corev1.ServiceAccount{TypeMeta: typeOf("v1", "ServiceAccount"), ObjectMeta: meta},
		&rbacv1.ClusterRole{
			TypeMeta: typeOf("rbac.authorization.k8s.io/v1", "ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: kubeVIPName},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "get", "watch"}},
				{
					APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
					Verbs: []string{"list", "get", "watch", "update", "create"},
				},
			},
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   typeOf("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: kubeVIPName},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: kubeVIPName},
			Subjects: []rbacv1.Subject{{
				Kind: rbacv1.ServiceAccountKind, Name: kubeVIPName,
				Namespace: metav1.NamespaceSystem,
			}},
		},
		&appsv1.DaemonSet{
			TypeMeta: typeOf("apps/v1", "DaemonSet"), ObjectMeta: meta,
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: onControlPlanes(corev1.PodSpec{
						ServiceAccountName: kubeVIPName,
						PriorityClassName:  "system-node-critical",
						Containers: []corev1.Container{{
							Name: kubeVIPName, Image: "ghcr.io/kube-vip/kube-vip:" + p.KubeVIP, Args: []string{"manager"},
							Env: append(env, kubePrism()...),
							SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{
								Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}, Drop: []corev1.Capability{"ALL"},
							}},
						}},
					}),
				},
			},
		},
	}
}

// kubePrism has a client in a pod on the host's network reach the Kubernetes API through Talos' own balancer.
func kubePrism() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: kubePrismHost},
		{Name: "KUBERNETES_SERVICE_PORT", Value: strconv.Itoa(constants.DefaultKubePrismPort)},
	}
}

// kubePrismHost is where it listens on every node.
const kubePrismHost = "localhost"
