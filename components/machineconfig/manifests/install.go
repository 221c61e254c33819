package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const hashLength = 8

// installer is the account of jobs that install something: an administrator's.
func installer(name string) []runtime.Object {
	return []runtime.Object{
		&corev1.ServiceAccount{
			TypeMeta:   typeOf("v1", "ServiceAccount"),
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   typeOf("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem}},
		},
	}
}

// install is a job of an installer, and the files that its first volume holds. Both are called after the version and
// the content: what changes is another job, which runs at once.
func install(installer, name, version string, files map[string]string, spec batchv1.JobSpec) ([]runtime.Object, error) {
	meta := metav1.ObjectMeta{Name: installer, Namespace: metav1.NamespaceSystem}
	settings := corev1.ConfigMap{
		TypeMeta: typeOf("v1", "ConfigMap"), ObjectMeta: meta, Immutable: new(true), Data: files,
	}
	job := batchv1.Job{TypeMeta: typeOf("batch/v1", "Job"), ObjectMeta: meta, Spec: spec}

	text, err := json.Marshal([]any{settings, job})
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(text)
	full := fmt.Sprintf("%s-%s-%s", name, strings.ReplaceAll(version, ".", "-"), hex.EncodeToString(sum[:])[:hashLength])
	settings.Name, job.Name = full, full
	job.Spec.Template.Spec.Volumes[0].ConfigMap.Name = full

	return []runtime.Object{&settings, &job}, nil
}
