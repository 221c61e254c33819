package pve_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
)

// base are the fields that the provider sends for every VM it makes.
var base = []string{
	"vmid", "101", "name", "w1", "acpi", "1", "agent", "enabled=0,fstrim_cloned_disks=0,type=virtio", "boot",
	"order=scsi0;net0",
	"cores", "2", "sockets", "1", "cpu", "cputype=host", "cpuunits", "1024", "memory", "2048", "balloon", "0", "keyboard",
	"en-us", "numa", "0",
	"onboot", "1", "ostype", "l26", "protection", "0", "scsihw", "virtio-scsi-pci", "tablet", "1", "template", "0", "vga",
	"memory=16,type=std",
	"net0", "model=virtio,bridge=vmbr0,firewall=0,macaddr=BC:24:11:00:00:01",
	"scsi0",
	"file=tank:20,format=raw,size=21474836480,aio=io_uring,backup=1,iothread=0,ssd=0,discard=ignore,cache=none,replicate=1",
}

// shapes are what a VM can be asked to be: the fields as the provider sends them, and what it reads back.
var shapes = map[string]struct{ send, read map[string]string }{
	"cpu": {
		send: map[string]string{"cores": "4", "sockets": "1", "cpu": "cputype=x86-64-v2-AES", "numa": "1"},
		read: map[string]string{"cores": "4", "cpu": "cputype=x86-64-v2-AES", "numa": "1"},
	},
	"memory": {
		send: map[string]string{"memory": "8192", "balloon": "8192"},
		read: map[string]string{"memory": "8192", "balloon": "8192"},
	},
	"q35":    {send: map[string]string{"machine": "q35"}, read: map[string]string{"machine": "q35"}},
	"i440fx": {send: map[string]string{"machine": "pc"}, read: map[string]string{"machine": "pc"}},
	"serial": {send: map[string]string{"serial0": "socket"}, read: map[string]string{"serial0": "socket"}},
	"startup": {
		send: map[string]string{"startup": "order=3,up=60,down=30"},
		read: map[string]string{"startup": "order=3,up=60,down=30"},
	},
	"tags": {
		send: map[string]string{"tags": "talos;Control;atlas"},
		read: map[string]string{"tags": "atlas;control;talos"},
	},
	"onboot":     {send: map[string]string{"onboot": "0"}, read: map[string]string{"onboot": "0"}},
	"protection": {send: map[string]string{"protection": "1"}, read: map[string]string{"protection": "1"}},
	"controller": {
		send: map[string]string{"scsihw": "virtio-scsi-single"},
		read: map[string]string{"scsihw": "virtio-scsi-single"},
	},
	"firmware": {
		send: map[string]string{"bios": "ovmf", "efidisk0": "file=tank:1,format=raw,efitype=4m,pre-enrolled-keys=0"},
		read: map[string]string{"bios": "ovmf", "efidisk0": "tank:vm-101-disk-0,efitype=4m,pre-enrolled-keys=0,size=4M"},
	},
	"firmware on files": {
		send: map[string]string{"bios": "ovmf", "efidisk0": "file=files:1,format=qcow2,efitype=4m,pre-enrolled-keys=0"},
		read: map[string]string{"efidisk0": "files:101/vm-101-disk-0.qcow2,efitype=4m,pre-enrolled-keys=0,size=528K"},
	},
	"tpm": {
		send: map[string]string{"tpmstate0": "file=zfs:1,version=v2.0"},
		read: map[string]string{"tpmstate0": "zfs:vm-101-disk-0,size=4M,version=v2.0"},
	},
	"identity": {
		send: map[string]string{"smbios1": "base64=0,uuid=6b1e9c32-8f6e-4a51-9f0d-0c1d2e3f4a5b"},
		read: map[string]string{"smbios1": "base64=0,uuid=6b1e9c32-8f6e-4a51-9f0d-0c1d2e3f4a5b"},
	},
	"agent": {
		send: map[string]string{"agent": "enabled=1,fstrim_cloned_disks=0,type=virtio"},
		read: map[string]string{"agent": "enabled=1,fstrim_cloned_disks=0,type=virtio"},
	},
	"disks": {
		send: map[string]string{
			"scsi1":   "file=tank:8,format=raw,size=8589934592,aio=native,backup=0,iothread=1,ssd=1,discard=on,cache=writeback,replicate=0",
			"scsi2":   "file=zfs:4,format=raw,size=4294967296,aio=threads,backup=1,iothread=0,ssd=0,discard=ignore,cache=directsync,replicate=1",
			"virtio0": "file=files:2,format=qcow2,size=2147483648,aio=io_uring,backup=1,iothread=1,discard=on,cache=writethrough,replicate=1",
		},
		read: map[string]string{
			"scsi1":   "tank:vm-101-disk-1,aio=native,backup=0,cache=writeback,discard=on,iothread=1,replicate=0,size=8G,ssd=1",
			"scsi2":   "zfs:vm-101-disk-0,aio=threads,backup=1,cache=directsync,discard=ignore,iothread=0,replicate=1,size=4G,ssd=0",
			"virtio0": "files:101/vm-101-disk-0.qcow2,aio=io_uring,backup=1,cache=writethrough,discard=on,iothread=1,replicate=1,size=2G",
		},
	},
	"networks": {
		send: map[string]string{
			"net0": "model=virtio,bridge=vmbr0,firewall=1,macaddr=BC:24:11:00:00:01,tag=30,mtu=1400",
			"net1": "model=virtio,bridge=vmbr1,firewall=0,macaddr=BC:24:11:00:00:02,mtu=1",
		},
		read: map[string]string{
			"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,mtu=1400,tag=30",
			"net1": "virtio=BC:24:11:00:00:02,bridge=vmbr1,firewall=0,mtu=1",
		},
	},
	"a mapped device": {
		send: map[string]string{"machine": "q35", "hostpci0": "mapping=gpu,pcie=1,rombar=1,x-vga=0"},
		read: map[string]string{"machine": "q35", "hostpci0": "mapping=gpu,pcie=1,rombar=1,x-vga=0"},
	},
	"an empty tray": {
		send: map[string]string{"ide3": "file=none,media=cdrom,", "boot": "order=scsi0;ide3"},
		read: map[string]string{"ide3": "none,media=cdrom", "boot": "order=scsi0;ide3"},
	},
	"an ISO image": {
		send: map[string]string{"ide2": "file=local:iso/talos.iso,media=cdrom,", "boot": "order=scsi0;ide2"},
		read: map[string]string{"ide2": "local:iso/talos.iso,media=cdrom,size=100M", "boot": "order=scsi0;ide2"},
	},
}

// pairs are the fields to send, those of a shape instead of the same ones of every VM.
func pairs(all []string, more map[string]string) []string {
	form := map[string]string{}
	for i := 0; i < len(all); i += 2 {
		form[all[i]] = all[i+1]
	}

	maps.Copy(form, more)

	var out []string
	for _, name := range slices.Sorted(maps.Keys(form)) {
		out = append(out, name, form[name])
	}

	return out
}

// has compares what is read of a VM; numbers are read as numbers.
func (f *face) has(want map[string]string) {
	f.Helper()

	have := f.object(f.ok("GET", "/nodes/pve1/qemu/101/config"))

	for _, name := range slices.Sorted(maps.Keys(want)) {
		if n, ok := have[name].(float64); ok {
			require.InDelta(f, number(f.T, want[name]), n, 0, name)
		} else {
			require.Equal(f, want[name], have[name], name)
		}
	}
}

func TestEveryShapeIsMadeAndReadBack(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			f := serve(t, timeline.Latencies{})
			f.ok("POST", "/cluster/mapping/pci", "id", "gpu", "map", mapped)

			require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", pairs(base, shape.send)...))
			f.has(shape.read)
			require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/status/start", "timeout", "1800"))

			// What is sent again as it was read changes nothing, and waits for nothing.
			f.ok("PUT", "/nodes/pve1/qemu/101/config", pairs([]string{"name", "w1"}, shape.read)...)
			f.has(shape.read)

			for _, item := range f.list(f.ok("GET", "/nodes/pve1/qemu/101/pending")) {
				require.NotContains(t, item, "pending", item["key"])
			}

			require.NoError(t, f.journal.Unknown())
		})
	}
}

func TestEveryShapeIsGivenToAClone(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			f := serve(t, timeline.Latencies{})
			f.ok("POST", "/cluster/mapping/pci", "id", "gpu", "map", mapped)

			require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/9000/clone", "newid", "101", "full", "1", "name", "w1"))

			// The clone has the template's disk, whose options the provider leaves alone; its image is number 0.
			read := maps.Clone(shape.read)
			if name == "firmware" {
				read["efidisk0"] = "tank:vm-101-disk-1,efitype=4m,pre-enrolled-keys=0,size=4M"
			}

			f.ok("PUT", "/nodes/pve1/qemu/101/config",
				pairs([]string{"name", "w1", "delete", "net2,net3,net31,serial1,serial2,serial3"}, shape.send)...)
			f.has(read)
			require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/status/start", "timeout", "1800"))
			f.has(read)
			require.NoError(t, f.journal.Unknown())
		})
	}
}

func TestShapesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		send                map[string]string
		create, task, start string
		errors              map[string]string
	}{
		"qcow2 on LVM": {
			send: map[string]string{"scsi1": "file=tank:8,format=qcow2,size=8589934592"},
			task: "unable to create VM 101 - unsupported format 'qcow2' at /usr/share/perl5/PVE/Storage/LvmThinPlugin.pm line 88.",
		},
		"qcow2 on ZFS": {
			send: map[string]string{"efidisk0": "file=zfs:1,format=qcow2,efitype=4m,pre-enrolled-keys=0"},
			task: "unable to create VM 101 - unsupported format 'qcow2' at /usr/share/perl5/PVE/Storage/ZFSPoolPlugin.pm line 239.",
		},
		"disks on a storage for files": {
			send: map[string]string{"scsi1": "file=local:8,format=raw"}, create: "400 Parameter verification failed.",
			errors: map[string]string{"storage": "storage 'local' does not support vm images"},
		},
		"the other name of i440fx": {
			send: map[string]string{"machine": "i440fx"}, create: "400 Parameter verification failed.",
			errors: map[string]string{"machine": "invalid format - format error\nmachine.type: value does not match the regex " +
				"pattern"},
		},
		"no such pool": {
			send:   map[string]string{"pool": "none"},
			create: "403 Permission check failed (pool 'none' does not exist)",
		},
		"more cores than the host has": {
			send: map[string]string{"cores": "17"}, start: "MAX 16 vcpus allowed per VM on this node",
		},
		"more than the bridge passes on": {
			send:  map[string]string{"net0": "model=virtio,bridge=vmbr0,macaddr=BC:24:11:00:00:01,mtu=9000"},
			start: "netdev net0: MTU '9000' is bigger than the bridge MTU '1500'",
		},
		"less than IP takes": {
			send:  map[string]string{"net1": "model=virtio,bridge=vmbr1,macaddr=BC:24:11:00:00:02,mtu=500"},
			start: "netdev net1: MTU '500' is smaller than the IP minimum MTU '576'",
		},
		"no such bridge": {
			send:  map[string]string{"net1": "model=virtio,bridge=vmbr7,macaddr=BC:24:11:00:00:02"},
			start: "start failed: QEMU exited with code 1",
		},
		"PCI Express without q35": {
			send:  map[string]string{"hostpci0": "mapping=gpu,pcie=1,rombar=1,x-vga=0"},
			start: "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 495.",
		},
		"a raw device by a token": {
			send:   map[string]string{"hostpci0": "host=0000:01:00.0,pcie=1,rombar=1,x-vga=0"},
			create: "500 only root can set 'hostpci0' config for non-mapped devices",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, timeline.Latencies{})
			f.ok("POST", "/cluster/mapping/pci", "id", "gpu", "map", mapped)

			switch form := pairs(base, c.send); {
			case c.create != "":
				a := f.call("POST", "/nodes/pve1/qemu", form...)
				require.Equal(t, c.create, a.status())
				require.Equal(t, c.errors, a.Errors)
			case c.task != "":
				require.Equal(t, c.task, f.task("POST", "/nodes/pve1/qemu", form...))
			default:
				require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", form...))
				require.Equal(t, c.start, f.task("POST", "/nodes/pve1/qemu/101/status/start"))
			}

			require.NoError(t, f.journal.Unknown())
		})
	}
}

func TestProtectionKeepsAVMAndItsDisks(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", pairs(base, map[string]string{"scsi1": "tank:1"})...))
	f.ok("PUT", "/nodes/pve1/qemu/101/config", "delete", "scsi1")
	f.ok("PUT", "/nodes/pve1/qemu/101/config", "protection", "1")

	require.Equal(t, "500 can't remove drive 'scsi0' - protection mode enabled",
		f.call("PUT", "/nodes/pve1/qemu/101/config", "delete", "scsi0").status())
	require.Equal(t, "500 can't remove unused disk 'tank:vm-101-disk-1' - protection mode enabled",
		f.call("PUT", "/nodes/pve1/qemu/101/config", "delete", "unused0").status())
	require.Equal(t, "500 can't remove VM 101 - protection mode enabled",
		f.call("DELETE", "/nodes/pve1/qemu/101/?destroy-unreferenced-disks=1&purge=1").status())

	f.ok("PUT", "/nodes/pve1/qemu/101/config", "protection", "0")
	require.Equal(t, "OK", f.task("DELETE", "/nodes/pve1/qemu/101/?destroy-unreferenced-disks=1&purge=1"))
}
