package machineconfig

import (
	"testing"

	blockproto "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestVolumes: each volume has the disk that it was configured with, wherever on the bus that is, and no other.
func TestVolumes(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			s := plantest.Atlas(versions)
			s.Cluster.Encryption = spec.EncryptionNodeID
			pool := s.Pools["worker"]
			pool.ExtraDisks = []spec.ExtraDisk{
				{SizeGiB: 10},
				{SizeGiB: 20, Volume: &spec.Volume{Name: "data"}},
				{SizeGiB: 30, DiskOptions: spec.DiskOptions{Interface: new("scsi7")}, Volume: &spec.Volume{
					Name: "Logs", Filesystem: "ext4",
				}},
			}
			own := pool.Nodes["2"]
			own.ExtraDisks, own.Disk = []spec.ExtraDisk{}, spec.DiskOptions{}
			pool.Nodes["2"] = own
			s.Pools["worker"] = pool

			p := plantest.New(t, s)
			_, err := Check(p)
			require.NoError(t, err)

			worker := p.Pools[1]
			require.Equal(t, "scsi2", worker.Nodes[0].Disks[2].Interface)

			volumes := fullConfiguration(t, p, worker.Nodes[0]).UserVolumeConfigs()
			require.Len(t, volumes, 2)
			require.Empty(t, fullConfiguration(t, p, worker.Nodes[1]).UserVolumeConfigs())
			require.Empty(t, fullConfiguration(t, p, p.Pools[0].Nodes[0]).UserVolumeConfigs())

			for i, want := range []struct{ name, disk, filesystem string }{
				{"data", "scsi2", "xfs"}, {"Logs", "scsi7", "ext4"},
			} {
				v := volumes[i]
				require.Equal(t, want.name, v.Name())
				require.Equal(t, want.filesystem, v.Filesystem().Type().String())
				require.NotNil(t, v.Encryption())
				require.True(t, v.Provisioning().Grow().ValueOrZero())

				selector := v.(*block.UserVolumeConfigV1Alpha1).ProvisioningSpec.DiskSelectorSpec.Match

				for _, disk := range []string{"scsi0", "scsi1", "scsi2", "scsi7", "scsi22"} {
					found, err := selector.EvalBool(celenv.DiskLocator(), map[string]any{
						"system_disk": false, "disk": &blockproto.DiskSpec{Symlinks: []string{
							"/dev/disk/by-path/pci-0000:01:01.0-scsi-0:0:0:" + disk[4:],
							"/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-" + disk,
						}},
					})
					require.NoError(t, err)
					require.Equal(t, disk == want.disk, found, "%s on %s", want.name, disk)
				}
			}
		})
	}
}
