package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

// TestMissingImage: a preview that plans downloads asks the hosts for them, and is refused where the URL holds nothing.
// It goes on without Proxmox VE.
func TestMissingImage(t *testing.T) {
	t.Parallel()

	text := strings.NewReplacer("iso: { volume: local:iso/talos-1.12.4.iso }",
		"iso: { url: https://mirror.lan/talos-1.12.4.iso }",
		"hosts: [{ name: pve1 }, { name: pve2 }]", "hosts: [{ name: pve1 }, { name: pve2 }, { name: pve3 }]",
		"worker: { role: worker, count: 1,",
		"worker: { role: worker, count: 2,").Replace(pair{"iso", "nocloud", "", "static"}.stack())

	r := rehearse(t, stackFile(t, text))
	missing := r.Lab.FactoryURL() + "/image/missing/v1.12.4/nocloud-amd64.iso"
	good, err := r.Stack.GetConfigWithOptions(t.Context(), "talos-proxmox:image.iso.url", &auto.ConfigOptions{Path: true})
	require.NoError(t, err)

	const refused = " cannot get the image "

	t.Run("before anything is made", func(t *testing.T) {
		set(t, r.Stack, "image.iso.url", missing)

		said := failPreview(t, r.Stack)
		assert.Contains(t, said, refused+missing+": Proxmox VE at")
		assert.Contains(t, said, "404 Not Found'; correct image.iso.url, or let the host reach it")
	})

	set(t, r.Stack, "image.iso.url", good.Value)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	before := r.Lab.World().Snapshot()

	t.Run("replacing images that are there", func(t *testing.T) {
		set(t, r.Stack, "image.iso.url", missing)

		assert.Contains(t, failPreview(t, r.Stack), refused+missing)
		assert.Contains(t, failUp(t, r.Stack), refused+missing)
		assert.Equal(t, before, r.Lab.World().Snapshot())
	})

	t.Run("without Proxmox VE", func(t *testing.T) {
		set(t, r.Stack, "proxmox.endpoint", "https://127.0.0.1:9")

		_, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(newOutput(t)))
		require.NoError(t, err, "what is not known is no error in a preview")
	})
}

// TestImageOfFailedChange: an update that failed leaves the image that it replaced to be deleted by the next one. Where
// that takes the change back, nodes boot from this image again, and it is kept.
func TestImageOfFailedChange(t *testing.T) {
	t.Parallel()

	// Both versions of Talos go with this one of Kubernetes.
	text := strings.ReplaceAll(pair{"factory", "nocloud", "iso", "reserved"}.stack(), "v1.34.2", "v1.32.3")

	r := rehearse(t, stackFile(t, text))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	t.Run("in a drive of another VM", func(t *testing.T) {
		volumes := r.Lab.World().Snapshot().Volumes
		at := slices.IndexFunc(volumes, func(v world.VolumeState) bool { return strings.Contains(v.ID, ":iso/pair-talos-") })
		require.GreaterOrEqual(t, at, 0, volumes)

		image, operator := volumes[at], world.Caller{ID: r.Lab.Credentials().TokenID}
		_, err := r.Lab.World().Create(operator, image.Host, world.CreateRequest{
			VMID: 9901, Conf: map[string]string{"name": "rescue", "ide2": image.ID + ",media=cdrom"},
		})
		require.NoError(t, err)

		set(t, r.Stack, "image.factory.extensions[1]", "iscsi-tools")
		assert.Contains(t, failPreview(t, r.Stack), "image "+image.ID+" is to be deleted, and is in drive ide2 of VM 9901 "+
			"(rescue) on host "+image.Host)
		_, err = r.Lab.World().Destroy(operator, image.Host, 9901, world.DestroyRequest{})
		require.NoError(t, err)

		_, err = r.Stack.Preview(t.Context(), optpreview.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
		unset(t, r.Stack, "image.factory.extensions[1]")
	})

	before := r.Lab.World().Snapshot()

	set(t, r.Stack, "cluster.versions.talos", "v1.9.5")
	assert.Contains(t, failUp(t, r.Stack), "Talos v1.12.4 cannot become v1.9.5")

	set(t, r.Stack, "cluster.versions.talos", "v1.12.4")
	up(t, r.Stack)
	assert.Equal(t, before, r.Lab.World().Snapshot())

	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}
