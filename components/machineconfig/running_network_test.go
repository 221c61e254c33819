package machineconfig

import (
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRunningNetwork: Talos takes another CNI and other networks, and removes nothing.
func TestRunningNetwork(t *testing.T) {
	configured := func(cni, pods string) talosconfig.Provider {
		cfg, err := container.New(&v1alpha1.Config{ClusterConfig: &v1alpha1.ClusterConfig{
			ClusterNetwork: &v1alpha1.ClusterNetworkConfig{
				CNI: &v1alpha1.CNIConfig{CNIName: cni}, PodSubnet: []string{pods},
				ServiceSubnet: []string{"10.96.0.0/12"},
			},
		}})
		require.NoError(t, err)

		return cfg
	}

	for name, c := range map[string]struct {
		is, want talosconfig.Provider
		refused  string
	}{
		"the same":       {configured("flannel", "10.244.0.0/16"), configured("flannel", "10.244.0.0/16"), ""},
		"from Flannel":   {configured("flannel", "10.244.0.0/16"), configured("none", "10.244.0.0/16"), "cluster.cni.name: "},
		"to Flannel":     {configured("none", "10.244.0.0/16"), configured("flannel", "10.244.0.0/16"), ""},
		"other networks": {configured("none", "10.244.0.0/16"), configured("none", "10.200.0.0/16"), "which has 10.244.0.0/16, 10.96.0.0/12"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckRunningNetwork(c.is, c.want)
			if c.refused == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.refused)
			}
		})
	}
}
