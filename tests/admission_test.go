package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/rehearsal"
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

			var dir string

			r := rehearse(t, file, onRealKubernetes, func(o *rehearsal.Options) { dir = o.Dir })
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

			var trusted, system, refused error

			// The controllers give a namespace its service account some time.
			if !assert.Eventually(t, func() bool {
				trusted, system, refused = run("trusted"), run("kube-system"), run("default")

				return trusted == nil && system == nil &&
					refused != nil && strings.Contains(refused.Error(), `violates PodSecurity "restricted:latest"`)
			}, time.Minute, 100*time.Millisecond) {
				t.Fatal(trusted, system, refused)
			}

			assert.Contains(t, auditLog(t, dir), `"requestURI":"/api/v1/namespaces/default/pods?dryRun=All"`)
			requireNoChange(t, r.Stack)
		})
	}
}

// auditLog is what the API servers of a rehearsal have logged.
func auditLog(t *testing.T, dir string) string {
	t.Helper()

	var all strings.Builder

	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		// Of the files of machines, only these are logs.
		if err != nil || !strings.Contains(path, "/machine/") || !strings.HasSuffix(path, ".log") {
			return err
		}

		text, err := os.ReadFile(path)
		all.Write(text)

		return err
	}))

	return all.String()
}
