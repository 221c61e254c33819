package running

import (
	"testing"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/machineconfig/manifests"
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

	withManifest := func(name, url string) talosconfig.Provider {
		cfg := configured("none", "10.244.0.0/16")
		cluster := cfg.RawV1Alpha1().ClusterConfig

		if name != "" {
			cluster.ClusterInlineManifests = v1alpha1.ClusterInlineManifests{{
				InlineManifestName: name, InlineManifestContents: "kind: Job",
			}}
		}

		if url != "" {
			cluster.ExtraManifests = []string{url}
		}

		return cfg
	}
	flannel := configured("flannel", "10.244.0.0/16")

	const fromCilium = "cluster.cni.name: does not change to flannel on a cluster that runs Cilium: nothing removes it, and " +
		"pods would have two networks (given: flannel); put it back"

	for name, c := range map[string]struct {
		is, want talosconfig.Provider
		refused  string
	}{
		"the same":                   {configured("flannel", "10.244.0.0/16"), configured("flannel", "10.244.0.0/16"), ""},
		"from Flannel":               {configured("flannel", "10.244.0.0/16"), configured("none", "10.244.0.0/16"), "cluster.cni.name: "},
		"to Flannel":                 {configured("none", "10.244.0.0/16"), configured("flannel", "10.244.0.0/16"), ""},
		"Cilium to Flannel":          {withManifest(manifests.Cilium, ""), flannel, fromCilium},
		"an operator's own Cilium":   {withManifest("manifests/Cilium.yaml", ""), flannel, fromCilium},
		"Cilium from elsewhere":      {withManifest("", "https://a.lan/cilium/install.yaml"), flannel, fromCilium},
		"Cilium stays":               {withManifest(manifests.Cilium, ""), withManifest(manifests.Cilium, ""), ""},
		"Cilium, installed by hand":  {withManifest(manifests.Cilium, ""), configured("none", "10.244.0.0/16"), ""},
		"another network to Flannel": {withManifest("kube-vip", ""), flannel, ""},
		"other networks":             {configured("none", "10.244.0.0/16"), configured("none", "10.200.0.0/16"), "which has 10.244.0.0/16, 10.96.0.0/12"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckNetwork(c.is, c.want)
			if c.refused == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.refused)
			}
		})
	}
}
