package pve_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
)

// TestImagesOfAPlugin: a plugin that keeps volumes for Kubernetes makes and removes images, for the number of no VM.
func TestImagesOfAPlugin(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	for _, tc := range []struct{ storage, name, size, format, volume, twice string }{
		{
			"zfs", "vm-9999-pv", "4G", "raw", "zfs:vm-9999-pv",
			"500 zfs error: cannot create 'zfs/vm-9999-pv': dataset already exists",
		},
		{
			"tank", "vm-9999-pv", "512M", "", "tank:vm-9999-pv",
			`500 lvcreate 'pve/vm-9999-pv' error: Logical Volume "vm-9999-pv" already exists in volume group "pve"`,
		},
		{
			"files", "pv.qcow2", "1024", "", "files:9999/pv.qcow2",
			"500 disk image '/mnt/pve/files/images/9999/pv.qcow2' already exists",
		},
	} {
		path := "/nodes/pve1/storage/" + tc.storage + "/content"
		sent := []string{"vmid", "9999", "filename", tc.name, "size", tc.size}

		if tc.format != "" {
			sent = append(sent, "format", tc.format)
		}

		require.Equal(t, tc.volume, f.ok("POST", path, sent...))
		require.Equal(t, tc.twice, f.call("POST", path, sent...).status())

		size := map[string]float64{"4G": 4 << 30, "512M": 512 << 20, "1024": 1 << 20}[tc.size]
		require.Equal(t, size, f.object(f.ok("GET", path+"/"+tc.volume))["size"])

		f.task("DELETE", path+"/"+tc.volume)
		require.Equal(t, tc.volume, f.ok("POST", path, sent...), "it is gone")
	}

	for _, tc := range []struct {
		storage, want string
		sent          []string
	}{
		{"zfs", "500 illegal name 'pv' - should be 'vm-9999-*'", []string{"filename", "pv", "size", "1G"}},
		{"files", "500 unable to parse volume filename 'pv'", []string{"filename", "pv", "size", "1G"}},
		{"files", "400 Parameter verification failed.", []string{"filename", "a.raw", "size", "1G", "format", "qcow2"}},
		{"files", "400 Parameter verification failed.", []string{"filename", "a.raw", "size", "1T"}},
	} {
		require.Equal(t, tc.want,
			f.call("POST", "/nodes/pve1/storage/"+tc.storage+"/content", append(tc.sent, "vmid", "9999")...).status())
	}

	require.NoError(t, f.journal.Unknown())
}
