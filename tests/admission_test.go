package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAdmission: the API servers of both kinds admit what the stack says, and audit it: released ones take the
// configuration that the nodes are given.
func TestAdmission(t *testing.T) {
	t.Parallel()

	const apiServer = `apiServer:
      audit: { apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{ level: Metadata }] }
      authentication: { apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration }
      admission:
        PodSecurity:
          apiVersion: pod-security.admission.config.k8s.io/v1
          kind: PodSecurityConfiguration
          defaults: { enforce: restricted, enforce-version: latest }
          exemptions: { namespaces: [trusted] }
`

	for name, file := range map[string]string{
		"smallest": example(t, "smallest", "cluster: { name: home, versions: { talos: v1.14.1, kubernetes: v1.37.0 } }\n",
			"cluster:\n    name: home\n    versions: { talos: v1.14.1, kubernetes: v1.37.0 }\n    "+apiServer),
		"k3s": example(t, "k3s", "    kind: k3s\n", "    kind: k3s\n    "+apiServer),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, file, onRealKubernetes)
			api := kubernetesClient(t, upResult(t, r.Stack).Outputs)

			_, err := api.CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "trusted"}}, metav1.CreateOptions{})
			require.NoError(t, err)

			run := func(namespace string) error {
				no := false

				_, err := api.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "loose"},
					Spec: corev1.PodSpec{
						AutomountServiceAccountToken: &no,
						Containers:                   []corev1.Container{{Name: "loose", Image: "loose"}},
					},
				}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})

				return err
			}

			// The controllers give a namespace its service account some time.
			require.Eventually(t, func() bool {
				return run("trusted") == nil && run("kube-system") == nil &&
					strings.Contains(text(run("default")), `violates PodSecurity "restricted:latest"`)
			}, time.Minute, 100*time.Millisecond, "%v, %v, %v", run("trusted"), run("kube-system"), run("default"))
			requireNoChange(t, r.Stack)
		})
	}
}

// text is what an error says, if there is one.
func text(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}
