package talosimage

import (
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/impact"
)

func TestSystem(t *testing.T) {
	id := strings.Repeat("0a", 32)

	for image, want := range map[string]impact.System{
		"factory.talos.dev/metal-installer/" + id +
			":v1.12.4": {Talos: "v1.12.4", Schematic: id, Platform: "metal", SecureBoot: new(false)},
		"factory.talos.dev/metal-installer-secureboot/" + id +
			":v1.12.4": {Talos: "v1.12.4", Schematic: id, Platform: "metal", SecureBoot: new(true)},
		"127.0.0.1:8080/nocloud-installer/" + id +
			":v1.12.4@sha256:abc": {Talos: "v1.12.4", Schematic: id, Platform: "nocloud", SecureBoot: new(false)},
		"factory.talos.dev/installer/" + id + ":v1.9.5": {Talos: "v1.9.5", Schematic: id, SecureBoot: new(false)},
		"factory.talos.dev/installer-secureboot/" + id +
			":v1.9.5": {Talos: "v1.9.5", Schematic: id, SecureBoot: new(true)},
		"ghcr.io/siderolabs/installer:v1.12.4": {Talos: "v1.12.4", SecureBoot: new(false)},
		"registry:5000/own":                    {},
	} {
		c, err := configloader.NewFromBytes([]byte(`version: v1alpha1
machine:
  type: worker
  install: { image: "` + image + `" }
  kubelet: { image: "ghcr.io/siderolabs/kubelet:v1.34.2" }
cluster: { controlPlane: { endpoint: "https://10.0.0.11:6443" } }
`))
		require.NoError(t, err)

		want.Kubernetes = "v1.34.2"
		assert.Equal(t, want, System(c), image)
	}
}
