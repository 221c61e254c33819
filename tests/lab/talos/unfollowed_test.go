package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnfollowed(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		config string
		want   []string
	}{
		"what nodes follow": {
			"version: v1alpha1\nmachine: {type: worker, kubelet: {image: x, extraConfig: {registerWithTaints: []}}, sysctls: {a: b}}\n" +
				"---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n", nil,
		},
		"what they do not": {
			"version: v1alpha1\nmachine: {type: worker, kernel: {modules: [{name: br_netfilter}]}, time: {disabled: false}, " +
				"kubelet: {extraConfig: {maxPods: 200}}}\ncluster: {etcd: {subnet: 10.0.0.0/8}}\n" +
				"---\napiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: a\ncertificates: b\n",
			[]string{
				"cluster.etcd.subnet", "documents TrustedRootsConfig", "machine.kernel", "machine.kubelet.extraConfig.maxPods",
				"machine.time",
			},
		},
	} {
		cfg, err := loadConfig([]byte(c.config))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, unfollowed(cfg), name)
	}
}
