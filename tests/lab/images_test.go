package lab_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/talos"
)

const metal = "metal"

// withTalos is a lab in whose VMs Talos runs: two hosts, a file that the operator put on one, and a share.
func withTalos(t *testing.T, change ...func(*lab.Config)) (*lab.Lab, *talos.Firmware) {
	t.Helper()

	var fw *talos.Firmware

	l, _ := start(t, append([]func(*lab.Config){func(c *lab.Config) {
		c.Hosts = append(c.Hosts, lab.Host{
			Name:     "pve2",
			Storages: append(c.Hosts[0].Storages, lab.Storage{Name: "nas", Type: "nfs", Content: []string{"iso"}}),
		})
		c.Hosts[0].Storages = c.Hosts[1].Storages
		c.Schematics = []*lab.Schematic{withAgent()}
		c.Files = []lab.File{
			{
				Storage: "local", Name: "talos-1.12.4.iso", Hosts: []string{"pve"},
				Asset: lab.Asset{Schematic: withAgent().ID(), Version: "v1.12.4", Platform: metal, ISO: true},
			},
			{
				Storage: "nas", Name: "talos-1.12.4.iso",
				Asset: lab.Asset{Schematic: factory.Plain, Version: "v1.12.4", Platform: metal, ISO: true},
			},
		}
		c.Firmware = func(s lab.Services) machine.Firmware {
			fw = talos.New(talos.Options{
				Journal: s.Journal, Timeline: s.Timeline, Latencies: s.Latencies,
				Schematic: talos.Schematics(s.Factory),
			})

			return fw
		}
	}}, change...)...)

	return l, fw
}

func withAgent() *lab.Schematic {
	s := &lab.Schematic{}
	s.Customization.SystemExtensions.OfficialExtensions = []string{"siderolabs/qemu-guest-agent"}

	return s
}

// boot makes a VM that boots what is in its drive, and returns what its firmware says once it has.
func boot(t *testing.T, l *lab.Lab, fw *talos.Firmware, id int, file string) talos.Status {
	t.Helper()

	node, err := byToken(l).Node(t.Context(), "pve")
	require.NoError(t, err)

	task, err := node.NewVirtualMachine(t.Context(), id,
		proxmox.VirtualMachineOption{Name: "scsi0", Value: "tank:20"},
		proxmox.VirtualMachineOption{Name: "ide2", Value: file + ",media=cdrom"},
		proxmox.VirtualMachineOption{Name: "boot", Value: "order=scsi0;ide2"},
		proxmox.VirtualMachineOption{Name: "start", Value: 1},
	)
	wait(t, task, err)

	var found talos.Status

	require.Eventually(t, func() bool {
		for _, n := range fw.Nodes() {
			if n.VMID == id && n.Stage != talos.StageBooting {
				found = n
			}
		}

		return found.VMID == id
	}, 10*time.Second, 5*time.Millisecond)

	return found
}

// download lets the first host fetch a URL, and returns how the task ended.
func download(t *testing.T, l *lab.Lab, url, name string) string {
	t.Helper()

	node, err := byToken(l).Node(t.Context(), "pve")
	require.NoError(t, err)
	storage, err := node.Storage(t.Context(), "local")
	require.NoError(t, err)
	task, err := storage.DownloadURL(t.Context(), "iso", name, url)
	require.NoError(t, err)
	_ = task.Wait(t.Context(), 10*time.Millisecond, time.Minute)

	return task.ExitStatus
}

func TestFilesOfTheOperator(t *testing.T) {
	l, fw := withTalos(t)

	node := boot(t, l, fw, 401, "local:iso/talos-1.12.4.iso")
	require.Equal(t, "v1.12.4", node.Version)
	require.Equal(t, talos.StageMaintenance, node.Stage)
	require.Equal(t, "v1.12.4", boot(t, l, fw, 402, "nas:iso/talos-1.12.4.iso").Version)

	list, err := l.World().Volumes(root(l), "pve2", "local", "iso", 0)
	require.NoError(t, err)
	require.Empty(t, list)
	list, err = l.World().Volumes(root(l), "pve2", "nas", "iso", 0)
	require.NoError(t, err)
	require.EqualValues(t, 112<<20, list[0].Size)
}

// What a host downloads is what a machine boots, as large as the real image.
func TestDownloadedImages(t *testing.T) {
	l, fw := withTalos(t)
	images := l.FactoryURL() + "/image/" + withAgent().ID() + "/v1.11.2/"

	require.Equal(t, "OK", download(t, l, images+"metal-amd64.iso", "talos.iso"))
	require.Equal(t, []lab.Download{{
		Host: "pve", URL: images + "metal-amd64.iso", Volume: "local:iso/talos.iso",
		Bytes: 112 << 20,
	}}, l.World().Downloads())
	require.Equal(t, "v1.11.2", boot(t, l, fw, 401, "local:iso/talos.iso").Version)

	// A disk image in the drive does not boot, nor does one that is still compressed.
	require.Equal(t, "OK", download(t, l, images+"metal-amd64.raw.zst", "talos.img"))
	require.Equal(t, talos.StageNoBoot, boot(t, l, fw, 402, "local:iso/talos.img").Stage)
}

func TestDownloadsThatGoWrong(t *testing.T) {
	l, fw := withTalos(t)
	url := l.FactoryURL() + "/image/" + factory.Plain + "/v1.11.2/metal-amd64.iso"
	plant := func(kind journal.Kind, times int) {
		l.Journal().Plant(journal.Fault{
			Face: journal.Factory, Call: regexp.MustCompile(`^GET .*\.iso$`), Kind: kind, Times: times, Message: "Not Found",
		})
	}

	plant(journal.Replace, 1)
	require.Equal(t, "OK", download(t, l, url, "nine.iso"))

	volume, err := l.World().Volume(root(l), "pve", "local", "local:iso/nine.iso")
	require.NoError(t, err)
	require.EqualValues(t, 9, volume.Size)
	require.Equal(t, talos.StageNoBoot, boot(t, l, fw, 401, "local:iso/nine.iso").Stage)

	plant(journal.Truncate, 1)
	require.Equal(t, "OK", download(t, l, url, "again.iso"), "it began again")

	plant(journal.Reset, 20)
	require.Equal(t, "download failed: exit code 4", download(t, l, url, "never.iso"))

	plant(journal.Refuse, 1)
	require.Equal(t, "download failed: exit code 8", download(t, l, url, "refused.iso"))
}
