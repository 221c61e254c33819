package k3sconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRemovedFeatures(t *testing.T) {
	t.Parallel()

	const text = `token: secret
kube-apiserver-arg: feature-gates=AppArmor=true,SidecarContainers=true
kubelet-arg+:
  - max-pods=200
  - --feature-gates=AppArmor=false
node-label: [feature-gates=AppArmor]
`

	removed, err := RemovedFeatures(text, "v1.34.1")
	require.NoError(t, err)
	assert.Equal(t, []string{"AppArmor of kube-apiserver-arg", "AppArmor of kubelet-arg+"}, removed)

	removed, err = RemovedFeatures(text, "v1.32.0")
	require.NoError(t, err)
	assert.Empty(t, removed)

	_, err = RemovedFeatures("token: [secret", "v1.34.1")
	assert.EqualError(t, err, "/etc/rancher/k3s/config.yaml is not a YAML file of options")
}
