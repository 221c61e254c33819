package k3s

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/proxmoxapi"
)

// TestRemovedFeatures: a node whose own file has a feature gate that is gone is not upgraded, and one whose file cannot
// be read is, with a warning.
func TestRemovedFeatures(t *testing.T) {
	t.Parallel()

	const refused = "its /etc/rancher/k3s/config.yaml has ElasticIndexedJob of kube-apiserver-arg: K3s does not start with " +
		"feature gates that Kubernetes v1.34.2 does not know; remove them there, on all nodes that have them, then run " +
		"'pulumi up' again"

	for name, c := range map[string]struct {
		config, from   string
		denied         error
		want, warnings string
	}{
		"a gate that is gone": {
			config: "kube-apiserver-arg: [feature-gates=ElasticIndexedJob=true]", from: "v1.33.6+k3s1", want: refused,
		},
		"another gate": {config: "kube-apiserver-arg: [feature-gates=SidecarContainers=true]", from: "v1.33.6+k3s1"},
		"the same minor version": {
			config: "kube-apiserver-arg: [feature-gates=ElasticIndexedJob=true]", from: "v1.34.1+k3s1",
		},
		"unknown": {
			config: "silent", from: "v1.33.6+k3s1", warnings: "could not check whether K3s v1.34.2+k3s1 starts on " +
				"edge-server-1, because feature gates are unknown: /etc/rancher/k3s/config.yaml could not be read through its " +
				"guest agent: QEMU guest agent is not running",
		},
		"not allowed": {
			config: "token: a", from: "v1.33.6+k3s1", denied: fmt.Errorf("403 (%w)", proxmoxapi.ErrRefused),
			warnings: "could not check whether K3s v1.34.2+k3s1 starts on edge-server-1, because feature gates are unknown: " +
				"/etc/rancher/k3s/config.yaml could not be read through its guest agent: 403 (" +
				proxmoxapi.ErrRefused.Error() + "); grant VM.Monitor",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := plantest.K3s(t)
			server := p.ControlPlanes()[0]

			var warned []string

			cluster := clusterOf(p, "127.0.0.9", "")
			cluster.Proxmox = machines{configs: map[int]string{server.VMID: c.config}, denied: c.denied}
			cluster.ProxmoxMajor = 8
			cluster.Warn = func(text string) { warned = append(warned, text) }

			cluster.checkedObjects.Do(func() {}) // no Kubernetes answers

			err := cluster.checkRemovedFeatures(t.Context(), server, c.from)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.want)
			}

			if c.warnings == "" {
				assert.Empty(t, warned)
			} else {
				assert.Equal(t, []string{c.warnings}, warned)
			}
		})
	}
}
