package kube

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// lightHelm is the simulated cluster, whose lock is held.
type lightHelm struct {
	*Cluster

	pod *corev1.Pod
}

// readReleases implements [helm]: service accounts that are bound to cluster-admin may.
func (h lightHelm) readReleases() error {
	account := accountOf(&h.pod.Spec)
	who := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: h.pod.Namespace}

	for _, obj := range h.objects[clusterRoleBindings] {
		b := obj.(*rbacv1.ClusterRoleBinding)
		if b.RoleRef.Kind == "ClusterRole" && b.RoleRef.Name == "cluster-admin" && slices.Contains(b.Subjects, who) {
			return nil
		}
	}

	return apierrors.NewForbidden(corev1.Resource("secrets"), "", fmt.Errorf(
		`User "system:serviceaccount:%s:%s" cannot list resource "secrets" in API group "" in the namespace "kube-system"`,
		h.pod.Namespace, account))
}

// configMap implements [helm].
func (h lightHelm) configMap(name string) (*corev1.ConfigMap, error) {
	obj, ok := h.objects[configMaps][key(h.pod.Namespace, name)]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}

	return obj.(*corev1.ConfigMap), nil
}

// installed implements [helm].
func (h lightHelm) installed() (bool, error) {
	_, there := h.objects[daemonSets][key(metav1.NamespaceSystem, ciliumName)]

	return there, nil
}

// apply implements [helm].
func (h lightHelm) apply(obj runtime.Object) error {
	h.put(kindOfObject(obj), obj)

	return nil
}

// apiHelm is a cluster behind its API: what is mounted comes by the kubelet, all else is done with a token of the pod's
// service account.
type apiHelm struct {
	ctx              context.Context
	pod              *corev1.Pod
	kubelet, account kubernetes.Interface
}

// token is one of the service account of a pod, as the kubelet mounts it.
func token(ctx context.Context, kubelet kubernetes.Interface, p *corev1.Pod) (string, error) {
	issued, err := kubelet.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, accountOf(&p.Spec),
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}

	return issued.Status.Token, nil
}

// readReleases implements [helm].
func (h apiHelm) readReleases() error {
	_, err := h.account.CoreV1().Secrets(metav1.NamespaceSystem).List(h.ctx, metav1.ListOptions{LabelSelector: "owner=helm"})

	return err
}

// configMap implements [helm].
func (h apiHelm) configMap(name string) (*corev1.ConfigMap, error) {
	return h.kubelet.CoreV1().ConfigMaps(h.pod.Namespace).Get(h.ctx, name, metav1.GetOptions{})
}

// installed implements [helm].
func (h apiHelm) installed() (bool, error) {
	_, err := h.account.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(h.ctx, ciliumName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}

	return err == nil, err
}

// apply implements [helm], on the server's side as Helm does.
func (h apiHelm) apply(obj runtime.Object) error {
	k := kindOfObject(obj)

	body, err := runtime.Encode(scheme.Codecs.LegacyCodec(k.gvk().GroupVersion()), obj)
	if err != nil {
		return err
	}

	base := "/apis/" + k.group
	if k.group == "" {
		base = "/api"
	}

	return h.account.Discovery().RESTClient().Patch(types.ApplyYAMLPatchType).
		AbsPath(base, k.version, "namespaces", metav1.NamespaceSystem, k.resource, accessor(obj).GetName()).
		Param("fieldManager", "helm").Param("force", "true").Body(body).Do(h.ctx).Error()
}
