package impact

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, text string) config.Provider {
	t.Helper()

	c, err := configloader.NewFromBytes([]byte(text))
	require.NoError(t, err)

	return c
}

const configured = `version: v1alpha1
machine:
  type: controlplane
  token: abcdef.0123456789abcdef
  kubelet: { image: "ghcr.io/siderolabs/kubelet:v1.33.6" }
  install:
    disk: /dev/sda
    image: "factory.talos.dev/metal-installer/aa:v1.11.6"
    extraKernelArgs: [siderolink.api=https://omni.lan:8090?jointoken=0123456789abcdef]
  sysctls: { net.core.somaxconn: "1024", vm.swappiness: "1" }
  env: { http_proxy: "http://proxy" }
  files: [{ path: /var/x, content: one, permissions: 0o600, op: create }]
cluster:
  controlPlane: { endpoint: "https://10.0.0.11:6443" }
  apiServer: { certSANs: [10.0.0.11] }
---
apiVersion: v1alpha1
kind: ExtensionServiceConfig
name: tailscale
environment: [TS_AUTHKEY=one]
---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: one
auto: off
`

const changed = `version: v1alpha1
machine:
  type: controlplane
  token: abcdef.fedcba9876543210
  kubelet: { image: "ghcr.io/siderolabs/kubelet:v1.34.2" }
  install:
    disk: /dev/sda
    image: "factory.talos.dev/metal-installer/aa:v1.12.4"
    extraKernelArgs: [siderolink.api=https://omni.lan:8090?jointoken=fedcba9876543210]
  sysctls: { net.core.somaxconn: "2048" }
  env: { http_proxy: "http://other" }
  files: [{ path: /var/x, content: two, permissions: 0o600, op: create }]
cluster:
  controlPlane: { endpoint: "https://10.0.0.11:6443" }
  apiServer: { certSANs: [10.0.0.11, 10.0.0.12] }
---
apiVersion: v1alpha1
kind: ExtensionServiceConfig
name: tailscale
environment: [TS_AUTHKEY=two]
---
apiVersion: v1alpha1
kind: HostnameConfig
hostname: two
auto: off
`

// TestSettings: what differs is named, and no secret is shown, neither one that Talos knows nor one that only its owner
// does.
func TestSettings(t *testing.T) {
	found, err := Settings(load(t, configured), load(t, changed))
	require.NoError(t, err)

	var lines []string
	for _, s := range found {
		lines = append(lines, s.String())
	}

	assert.Equal(t, []string{
		"ExtensionServiceConfig[tailscale].environment[0]: changes (secret)",
		"HostnameConfig.hostname: one becomes two",
		"cluster.apiServer.certSANs[1]: 10.0.0.12 (new)",
		"machine.env.http_proxy: changes (secret)",
		"machine.files[0].content: changes (secret)",
		"machine.install.extraKernelArgs[0]: changes (secret)",
		"machine.install.image: factory.talos.dev/metal-installer/aa:v1.11.6 becomes " +
			"factory.talos.dev/metal-installer/aa:v1.12.4",
		"machine.kubelet.image: ghcr.io/siderolabs/kubelet:v1.33.6 becomes ghcr.io/siderolabs/kubelet:v1.34.2",
		"machine.sysctls.net.core.somaxconn: 1024 becomes 2048",
		"machine.sysctls.vm.swappiness: 1 (goes)",
		"machine.token: changes (secret)",
	}, lines)

	for _, line := range lines {
		for _, secret := range []string{"0123456789abcdef", "fedcba9876543210", "TS_AUTHKEY", "http://", "two)"} {
			assert.NotContains(t, line, secret)
		}
	}

	same, err := Settings(load(t, configured), load(t, configured))
	require.NoError(t, err)
	assert.Empty(t, same)
}
