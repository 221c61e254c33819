package world_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

// withCards gives pve1 two graphics cards and a network card, and pve2 one graphics card in another slot.
func withCards(o *world.Options) {
	nic := world.PCIDevice{BDF: "0000:03:00.0", Class: "0x020000", Vendor: "0x8086", Device: "0x1533", IOMMUGroup: 3}

	o.Hosts[0].PCI = slices.Concat(world.GPU("0000:01:00", 1), world.GPU("0000:02:00", 2), []world.PCIDevice{nic})
	o.Hosts[1].PCI = world.GPU("0000:41:00", 14)
}

const card = "id=10de:2204,subsystem-id=10de:147d,"

// mapDevices makes the mapping "gpu".
func mapDevices(t *testing.T, w *world.World, entries ...string) {
	t.Helper()
	require.NoError(t, w.CreateMapping(world.Mapping{ID: "gpu", Kind: "pci", Map: entries}))
}

func TestDevicesThatAVMIsStartedWith(t *testing.T) {
	for name, c := range map[string]struct {
		mapping  []string
		settings []string
		want     []string
	}{
		"one function":       {settings: []string{"hostpci0 host=0000:01:00.0"}, want: []string{"0000:01:00.0"}},
		"all functions":      {settings: []string{"hostpci0 0000:01:00"}, want: []string{"0000:01:00.0", "0000:01:00.1"}},
		"without the domain": {settings: []string{"hostpci0 01:00.1"}, want: []string{"0000:01:00.1"}},
		"a list": {
			settings: []string{"hostpci0 01:00;02:00.0"},
			want:     []string{"0000:01:00.0", "0000:01:00.1", "0000:02:00.0"},
		},
		"two settings": {
			settings: []string{"hostpci1 host=01:00.0", "hostpci0 host=03:00.0"},
			want:     []string{"0000:03:00.0", "0000:01:00.0"},
		},
		"PCI Express": {
			settings: []string{"machine q35", "hostpci0 host=0000:01:00.0,pcie=1,rombar=0,x-vga=1"},
			want:     []string{"0000:01:00.0"},
		},
		"PCI Express, versions": {
			settings: []string{"machine pc-q35-9.2", "hostpci0 host=0000:01:00.0,pcie=1"},
			want:     []string{"0000:01:00.0"},
		},
		"a mapping": {
			mapping: []string{
				card + "node=pve1,path=0000:02:00.0,iommugroup=2",
				card + "node=pve2,path=0000:41:00,iommugroup=14",
			}, settings: []string{"hostpci0 mapping=gpu"},
			want: []string{"0000:02:00.0"},
		},
		"a mapping of a whole device": {
			mapping: []string{card + "node=pve1,path=0000:02:00,iommugroup=2"}, settings: []string{"hostpci0 mapping=gpu"},
			want: []string{"0000:02:00.0", "0000:02:00.1"},
		},
		"the first of a mapping's devices": {
			mapping:  []string{card + "node=pve1,path=0000:01:00,iommugroup=1", card + "node=pve1,path=0000:02:00,iommugroup=2"},
			settings: []string{"hostpci0 mapping=gpu", "hostpci1 mapping=gpu"},
			want:     []string{"0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:02:00.1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := newWorld(t, withCards)
			if c.mapping != nil {
				mapDevices(t, w, c.mapping...)
			}

			upid, err := w.Create(root, "pve1", world.CreateRequest{VMID: 100, Conf: settingsOf(c.settings)})
			done(t, w, upid, err)
			upid, err = w.Start(token, "pve1", 100)
			done(t, w, upid, err)
			require.Equal(t, c.want, f.last().PCI)

			// The settings stay as they were sent.
			for _, setting := range c.settings {
				key, value, _ := strings.Cut(setting, " ")
				require.Equal(t, value, config(t, w, "pve1", 100)[key])
			}
		})
	}
}

func TestDevicesThatKeepAVMFromStarting(t *testing.T) {
	for name, c := range map[string]struct {
		mapping  []string
		settings []string
		want     string
	}{
		"no such device": {
			settings: []string{"hostpci0 host=0000:09:00.0"},
			want:     "no PCI device found for '0000:09:00.0'",
		},
		"one of a list": {
			settings: []string{"hostpci0 host=01:00;09:00"},
			want:     "no PCI device found for '09:00'",
		},
		"PCI Express on i440fx": {
			settings: []string{"hostpci0 host=01:00,pcie=1"},
			want:     "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 495.",
		},
		"PCI Express on named i440fx": {
			settings: []string{"machine pc-i440fx-9.2", "hostpci0 host=01:00,pcie=1"},
			want:     "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 495.",
		},
		"one device twice": {
			settings: []string{"hostpci0 host=01:00", "hostpci1 host=01:00.1"},
			want:     "device '0000:01:00.1' assigned more than once",
		},
		"a device and a mapping": {
			settings: []string{"hostpci0 host=01:00,mapping=gpu"},
			want:     "Cannot set both 'host' and 'mapping'.",
		},
		"neither":    {settings: []string{"hostpci0 pcie=0"}, want: "Either 'host' or 'mapping' must be set."},
		"no mapping": {settings: []string{"hostpci0 mapping=gpu"}, want: "PCI device mapping not found for 'gpu'"},
		"no mapping here": {
			mapping: []string{card + "node=pve2,path=0000:41:00,iommugroup=14"}, settings: []string{"hostpci0 mapping=gpu"},
			want: "PCI device mapping not found for 'gpu'",
		},
		"a mapping of nothing": {
			mapping: []string{card + "node=pve1,path=0000:09:00,iommugroup=1"}, settings: []string{"hostpci0 mapping=gpu"},
			want: "PCI device mapping invalid (hardware probably changed): pci device '0000:09:00.0' not found",
		},
		"another device": {
			mapping: []string{"id=10de:1eb8,node=pve1,path=0000:01:00,iommugroup=1"}, settings: []string{"hostpci0 mapping=gpu"},
			want: "PCI device mapping invalid (hardware probably changed): 'id' does not match for 'gpu' (10de:2204 != " +
				"10de:1eb8)",
		},
		"another group": {
			mapping: []string{card + "node=pve1,path=0000:01:00,iommugroup=7"}, settings: []string{"hostpci0 mapping=gpu"},
			want: "PCI device mapping invalid (hardware probably changed): 'iommugroup' does not match for 'gpu' (1 != 7)",
		},
		"no group": {
			mapping: []string{card + "node=pve1,path=0000:01:00"}, settings: []string{"hostpci0 mapping=gpu"},
			want: "PCI device mapping invalid (hardware probably changed): missing expected property 'iommugroup' for device " +
				"'0000:01:00.0'",
		},
		"no subsystem": {
			mapping: []string{"id=10de:2204,node=pve1,path=0000:01:00,iommugroup=1"}, settings: []string{"hostpci0 mapping=gpu"},
			want: "PCI device mapping invalid (hardware probably changed): missing expected property 'subsystem-id' for " +
				"device '0000:01:00.0'",
		},
		"a subsystem that is not there": {
			mapping:  []string{"id=8086:1533,subsystem-id=8086:0001,node=pve1,path=0000:03:00.0,iommugroup=3"},
			settings: []string{"hostpci0 mapping=gpu"},
			want: "PCI device mapping invalid (hardware probably changed): unexpected property 'subsystem-id' configured " +
				"for device '0000:03:00.0'",
		},
		"more settings than devices": {
			mapping:  []string{card + "node=pve1,path=0000:01:00,iommugroup=1", card + "node=pve1,path=0000:02:00,iommugroup=2"},
			settings: []string{"hostpci0 mapping=gpu", "hostpci1 mapping=gpu", "hostpci2 mapping=gpu"},
			want:     "could not find a free device for 'hostpci2'",
		},
		"a mediated device": {
			settings: []string{"hostpci0 host=01:00.0,mdev=nvidia-63"},
			want:     "could not create mediated device",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := newWorld(t, withCards)
			if c.mapping != nil {
				mapDevices(t, w, c.mapping...)
			}

			upid, err := w.Create(root, "pve1", world.CreateRequest{VMID: 100, Conf: settingsOf(c.settings)})
			done(t, w, upid, err)
			upid, err = w.Start(token, "pve1", 100)
			require.Equal(t, c.want, ended(t, w, upid, err))

			boots, _ := f.count()
			require.Zero(t, boots)
		})
	}
}

func TestDevicesBelongToOneVMAtATime(t *testing.T) {
	w, f := newWorld(t, withCards)

	// Three VMs: two that want the same function, and one that wants the other function of the same group.
	for id, device := range map[int]string{100: "0000:01:00.0", 101: "0000:01:00.0", 102: "0000:01:00.1"} {
		upid, err := w.Create(root, "pve1", world.CreateRequest{VMID: id, Conf: map[string]string{"hostpci0": device}})
		done(t, w, upid, err)
	}

	start := func(id int) string {
		upid, err := w.Start(token, "pve1", id)

		return ended(t, w, upid, err)
	}

	require.Equal(t, "OK", start(100))
	require.Equal(t, "PCI device '0000:01:00.0' already in use by VMID '100'", start(101))
	require.Equal(t, "start failed: QEMU exited with code 1", start(102))

	log, err := w.TaskLog("pve1", w.Tasks("pve1")[0].UPID)
	require.NoError(t, err)
	require.Equal(t,
		"kvm: -device vfio-pci,host=0000:01:00.1: vfio 0000:01:00.1: failed to open /dev/vfio/1: Device or resource busy",
		log[0])

	// A reset keeps the devices, even when the settings no longer name them.
	require.NoError(t, w.Update(root, "pve1", 100, world.UpdateRequest{Delete: []string{"hostpci0"}}))
	upid, err := w.Reset(token, "pve1", 100)
	done(t, w, upid, err)
	require.Equal(t, []string{"0000:01:00.0"}, f.last().PCI)
	require.Equal(t, "PCI device '0000:01:00.0' already in use by VMID '100'", start(101))

	upid, err = w.Stop(token, "pve1", 100)
	done(t, w, upid, err)
	require.Equal(t, "OK", start(101))
	upid, err = w.Stop(token, "pve1", 101)
	done(t, w, upid, err)
	require.Equal(t, "OK", start(102))
}

func TestAHostWithoutIOMMU(t *testing.T) {
	w, _ := newWorld(t, withCards, func(o *world.Options) { o.Hosts[0].NoIOMMU = true })

	upid, err := w.Create(root, "pve1", world.CreateRequest{VMID: 100, Conf: map[string]string{"hostpci0": "01:00"}})
	done(t, w, upid, err)
	upid, err = w.Start(token, "pve1", 100)
	require.Equal(t, "cannot prepare PCI pass-through, IOMMU not present", ended(t, w, upid, err))
}

func TestWhoMayPassDevicesThrough(t *testing.T) {
	w, _ := newWorld(t, withCards)
	mapDevices(t, w, card+"node=pve1,path=0000:01:00,iommugroup=1")
	create(t, w, 100)
	create(t, w, 101, "hostpci0 mapping=gpu")

	// Raw devices are for root@pam alone, to give and to take away, and with a copy too.
	raw := map[string]string{"hostpci0": "host=0000:02:00.0"}
	refused := "only root can set 'hostpci0' config for non-mapped devices"

	require.EqualError(t, w.Update(token, "pve1", 100, world.UpdateRequest{Conf: raw}), refused)
	require.NoError(t, w.Update(root, "pve1", 100, world.UpdateRequest{Conf: raw}))
	require.EqualError(t, w.Update(token, "pve1", 100, world.UpdateRequest{Delete: []string{"hostpci0"}}), refused)
	require.EqualError(t, w.Update(token, "pve1", 100,
		world.UpdateRequest{Conf: map[string]string{"hostpci0": "mapping=gpu"}}), refused)
	_, err := w.Clone(token, "pve1", 100, world.CloneRequest{NewID: 102})
	require.EqualError(t, err, refused)

	// A mapping is used by who may use it.
	least := world.Caller{ID: "pulumi@pve!least"}
	w.AddToken(least.ID, "s")
	w.Grant(least.ID, "/vms", "VM.Allocate", "VM.Clone", "VM.Config.HWType")

	denied := "Permission check failed (/mapping/pci/gpu, Mapping.Use)"
	mapped := world.UpdateRequest{Conf: map[string]string{"hostpci0": "mapping=gpu,pcie=1"}}

	require.EqualError(t, w.Update(least, "pve1", 101, mapped), denied)
	require.EqualError(t, w.Update(least, "pve1", 101, world.UpdateRequest{Delete: []string{"hostpci0"}}), denied)
	_, err = w.Clone(least, "pve1", 101, world.CloneRequest{NewID: 102})
	require.EqualError(t, err, denied)

	w.Grant(least.ID, "/mapping/pci/gpu", "Mapping.Use")
	require.NoError(t, w.Update(least, "pve1", 101, mapped))

	w.Grant(least.ID, "/vms", "VM.Allocate")
	require.EqualError(t, w.Update(least, "pve1", 101, mapped), "Permission check failed (/vms/101, VM.Config.HWType)")
}

func TestDevicesKeepAVMOnItsHost(t *testing.T) {
	w, _ := newWorld(t, withCards)
	mapDevices(t, w, card+"node=pve1,path=0000:01:00,iommugroup=1")

	create(t, w, 100, "scsi0 nas:1", "hostpci0 mapping=gpu")

	migrate := func(from, to string, id int, r world.MigrateRequest) string {
		r.Target = to
		upid, err := w.Migrate(root, from, id, r)
		exit := ended(t, w, upid, err)

		for _, line := range log(t, w, from, upid) {
			if why, is := strings.CutPrefix(line, "ERROR: migration aborted: "); is {
				return why
			}
		}

		return exit
	}

	require.Equal(t, "can't migrate to 'pve2': missing mapped devices hostpci0",
		migrate("pve1", "pve2", 100, world.MigrateRequest{}))

	require.NoError(t, w.UpdateMapping("pci", "gpu", world.MappingUpdate{Map: []string{
		card + "node=pve1,path=0000:01:00,iommugroup=1", card + "node=pve2,path=0000:41:00,iommugroup=14",
	}}))

	upid, err := w.Start(root, "pve1", 100)
	done(t, w, upid, err)
	require.Equal(t, "can't live migrate running VM which uses following mapped devices: gpu",
		migrate("pve1", "pve2", 100, world.MigrateRequest{Online: true}))

	upid, err = w.Stop(root, "pve1", 100)
	done(t, w, upid, err)
	require.Equal(t, "OK", migrate("pve1", "pve2", 100, world.MigrateRequest{}))

	require.NoError(t, w.Update(root, "pve2", 100,
		world.UpdateRequest{Conf: map[string]string{"hostpci0": "41:00", "serial0": "/dev/ttyS0", "serial1": "socket"}}))
	require.Equal(t, "can't migrate VM which uses local devices: hostpci0, serial0",
		migrate("pve2", "pve1", 100, world.MigrateRequest{}))
}

func TestAnInventoryThatNoHostHas(t *testing.T) {
	good := world.GPU("0000:01:00", 1)[0]

	change := func(f func(*world.PCIDevice)) []world.PCIDevice {
		d := good
		f(&d)

		return []world.PCIDevice{d}
	}

	for want, devices := range map[string][]world.PCIDevice{
		`host "pve": PCI device "01:00.0": the address is written as 0000:01:00.0`: change(
			func(d *world.PCIDevice) { d.BDF = "01:00.0" }),
		`host "pve": PCI device "0000:01:00.0" is there twice`: {good, good},
		`host "pve": PCI device "0000:01:00.0": class, vendor and device are written as 0x030000, 0x10de, 0x2204`: change(
			func(d *world.PCIDevice) { d.Vendor = "10de" }),
		`host "pve": PCI device "0000:01:00.0": a subsystem has a vendor and a device`: change(
			func(d *world.PCIDevice) { d.SubsystemDevice = "" }),
	} {
		_, err := world.New(world.Options{Hosts: []world.Host{{Name: "pve", PCI: devices}}})
		require.EqualError(t, err, want)
	}
}
