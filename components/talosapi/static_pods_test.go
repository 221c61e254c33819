package talosapi

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMissingArg: Talos overwrites some arguments with those of the configuration, adds to others, and leaves out those
// that it does not let be changed.
func TestMissingArg(t *testing.T) {
	wanted, err := configloader.NewFromBytes([]byte(`version: v1alpha1
machine:
  kubelet: { extraArgs: { v: "3", cert-dir: /tmp } }
cluster:
  apiServer: { extraArgs: { enable-admission-plugins: "A, B", profiling: "true", service-account-issuer: [a, b] } }
`))
	require.NoError(t, err)

	api := Rendered{args: []string{
		"/usr/local/bin/kube-apiserver", "--enable-admission-plugins=NodeRestriction,A,B", "--profiling=true",
		"--service-account-issuer=a", "--service-account-issuer=b",
	}}
	assert.Empty(t, api.MissingArg(k8s.APIServerID, wanted))

	api.args[2] = "--profiling=false"
	assert.Equal(t, "profiling", api.MissingArg(k8s.APIServerID, wanted))

	kubelet := Rendered{args: []string{"--cert-dir=/var/lib/kubelet/pki", "--v=3"}}
	assert.Equal(t, "cert-dir", kubelet.MissingArg(k8s.KubeletID, wanted))
	assert.Empty(t, Rendered{}.MissingArg(k8s.SchedulerID, wanted))
}
