package world_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// What boots an image had to wait for its download: as a medium when it was made, as a disk when it was imported.
func TestTheChainOfAnImage(t *testing.T) {
	for name, tc := range map[string]struct {
		disk bool
		want []string
	}{
		"medium": {false, []string{"download", "create", "start"}},
		"disk":   {true, []string{"download", "import", "start"}},
	} {
		t.Run(name, func(t *testing.T) {
			tl := timeline.New()
			w, _ := newWorld(t, func(o *world.Options) {
				o.Timeline = tl
				o.Latencies = timeline.Latencies{
					Download: 30 * time.Millisecond, CreateVM: 20 * time.Millisecond, Import: 10 * time.Millisecond,
					Start: 10 * time.Millisecond,
				}
			})

			upid, err := w.Download(token, "pve1", "local", iso("a.img", "raw image"))
			done(t, w, upid, err)

			if tc.disk {
				create(t, w, 401, "name cp")

				made, err := w.ImportDisk(t.Context(), "pve1",
					world.ImportRequest{VMID: 401, Source: "/var/lib/vz/template/iso/a.img", Storage: "tank", Format: "qcow2"})
				require.NoError(t, err)
				require.Equal(t, world.Imported{Name: "unused0", Volume: "tank:vm-401-disk-0", Format: "raw"}, made)
				require.Equal(t, "tank:vm-401-disk-0", config(t, w, "pve1", 401)["unused0"])

				require.NoError(t, update(w, 401, "scsi0 tank:vm-401-disk-0,discard=on"))
				require.NotContains(t, config(t, w, "pve1", 401), "unused0")
			} else {
				create(t, w, 401, "name cp", "ide2 local:iso/a.img,media=cdrom")
			}

			upid, err = w.Start(token, "pve1", 401)
			done(t, w, upid, err)

			var chain []string
			for _, s := range tl.Report().Chain {
				chain = append(chain, s.Name)
			}

			require.Equal(t, tc.want, chain)
		})
	}
}
