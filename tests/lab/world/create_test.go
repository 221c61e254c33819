package world_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/world"
)

func TestValuesComeBackAsProxmoxKeepsThem(t *testing.T) {
	w, _ := newWorld(t)

	create(t, w, 100,
		"name cp0", "cores 4", "memory 4096", "onboot 1", "agent enabled=0,fstrim_cloned_disks=0,type=virtio",
		"cpu cputype=host", "cpulimit 2",
		"virtio0 file=tank:20,format=raw,size=21474836480,aio=io_uring,backup=1,iothread=0,discard=ignore,cache=none,replicate=1",
		"ide2 file=local:iso/talos.iso,media=cdrom,", "ide3 file=none,media=cdrom,",
		"net0 model=virtio,bridge=vmbr0,firewall=0,macaddr=BC:24:11:00:00:01",
		"net1 virtio,bridge=vmbr0,tag=30", "efidisk0 file=tank:1,format=raw,efitype=4m,pre-enrolled-keys=0",
		"tpmstate0 file=tank:1,version=v2.0",
		"ide0 file=local:cloudinit,media=cdrom,", "tags b;a,b", "boot order=ide2;virtio0;net0", "vga memory=16,type=std",
		"template 0",
		"cipassword secret",
	)

	conf := config(t, w, "pve1", 100)
	require.Regexp(t, `^virtio=BC:24:11(:[0-9A-F]{2}){3},bridge=vmbr0,tag=30$`, conf["net1"])
	require.Regexp(t, `^uuid=[0-9a-f-]{36}$`, conf["smbios1"])
	require.Regexp(t, `^[0-9a-f-]{36}$`, conf["vmgenid"])
	require.Regexp(t, `^creation-qemu=[0-9.]+,ctime=\d+$`, conf["meta"])
	require.Regexp(t, `^[0-9a-f]{40}$`, conf["digest"])

	for _, key := range []string{"net1", "smbios1", "vmgenid", "meta", "digest"} {
		delete(conf, key)
	}

	require.Equal(t, map[string]any{
		"name": "cp0", "cores": 4, "memory": "4096", "onboot": 1, "agent": "enabled=0,fstrim_cloned_disks=0,type=virtio",
		"cpu":      "cputype=host",
		"cpulimit": "2", "template": 0, "vga": "memory=16,type=std", "tags": "a;b", "boot": "order=ide2;virtio0;net0",
		"cipassword": "**********",
		"efidisk0":   "tank:vm-100-disk-0,efitype=4m,pre-enrolled-keys=0,size=4M",
		"tpmstate0":  "tank:vm-100-disk-1,size=4M,version=v2.0",
		"virtio0":    "tank:vm-100-disk-2,aio=io_uring,backup=1,cache=none,discard=ignore,iothread=0,replicate=1,size=20G",
		"ide0":       "local:100/vm-100-cloudinit.qcow2,media=cdrom",
		"ide2":       "local:iso/talos.iso,media=cdrom,size=100M",
		"ide3":       "none,media=cdrom",
		"net0":       "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=0",
	}, conf)
}

// TestTheEndOfADescription: white space ends no description, and stays at the end of its other lines.
func TestTheEndOfADescription(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "cores 1")

	for text, want := range map[string]string{
		"# Node  \nof a cluster  ": "# Node  \nof a cluster", "one\r\n\t\n": "one", " one": " one",
	} {
		require.NoError(t, update(w, 100, "description "+text))
		require.Equal(t, want, config(t, w, "pve1", 100)["description"])
	}

	clone(t, w, world.CloneRequest{NewID: 101, Description: "a clone \n"})
	require.Equal(t, "a clone", config(t, w, "pve1", 101)["description"])
}

func TestBootOrderOfAVMWithoutOne(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "scsi1 tank:1", "scsi0 tank:1", "ide2 none,media=cdrom", "net1 virtio,bridge=vmbr0")
	require.Equal(t, "order=scsi0;ide2;net1", config(t, w, "pve1", 100)["boot"])
}

func TestVMsThatAreRefused(t *testing.T) {
	w, _ := newWorld(t)
	before := w.Snapshot()

	for _, c := range []struct{ setting, want string }{
		{"name a_b", "Parameter verification failed. (name: invalid format - value does not look like a valid DNS name)"},
		{"memory much", "Parameter verification failed. (memory: invalid format - format error\nmemory.current: type check " +
			"('integer') failed - got 'much')"},
		{"cores 0", "Parameter verification failed. (cores: value must have a minimum value of 1)"},
		{"onboot yes", "Parameter verification failed. (onboot: type check ('boolean') failed - got 'yes')"},
		{
			"bios uefi",
			"Parameter verification failed. (bios: value 'uefi' does not have a value in the enumeration 'seabios, ovmf')",
		},
		{"scsi0 gone:10", "storage 'gone' does not exist"},
		{"scsi0 local:iso/gone.iso,media=cdrom", ""},
		{"scsi0 local:iso/talos.iso", ""},
		{
			"scsi0 tank:1,colour=red",
			"Parameter verification failed. (scsi0: invalid format - invalid key in comma-separated list property: colour)",
		},
		{
			"net0 virtio,bridge=vmbr0,macaddr=BD:24:11:00:00:01",
			"Parameter verification failed. (net0: invalid format - format error\n" +
				"net0.macaddr: invalid format - value does not look like a valid unicast MAC address)",
		},
		{
			"net0 carrier=pigeon",
			"Parameter verification failed. (net0: invalid format - invalid key in comma-separated list property: carrier)",
		},
		{"net0 virtio,bridge=vmbr0,tag=4095", "Parameter verification failed. (net0: invalid format - format error\n" +
			"net0.tag: value must have a maximum value of 4094)"},
		{"net0 bridge=vmbr0", "Parameter verification failed. (net0: invalid format - format error\nnet0.model: property " +
			"is missing and it is not optional)"},
		{"machine i440fx", "Parameter verification failed. (machine: invalid format - format error\nmachine.type: value " +
			"does not match the regex pattern)"},
		{"cpu pentium9", "Parameter verification failed. (cpu: invalid format - Built-in cputype 'pentium9' is not defined " +
			"(missing 'custom-' prefix?))"},
		{
			"cpu host,flags=+fly",
			"Parameter verification failed. (cpu: invalid format - VM-specific CPU flags must be a subset of: " +
				"pcid, spec-ctrl, ibpb, ssbd, virt-ssbd, amd-ssbd, amd-no-ssb, pdpe1gb, md-clear, hv-tlbflush, hv-evmcs, aes)",
		},
		{"startup first", "Parameter verification failed. (startup: invalid format - unable to parse startup options)"},
		{"tags a;b c!", "Parameter verification failed. (tags: invalid format - invalid characters in tag)"},
		{"smbios1 uuid=1", "Parameter verification failed. (smbios1: invalid format - format error\nsmbios1.uuid: value " +
			"does not match the regex pattern)"},
		{"boot order=scsi0;floppy0", "Parameter verification failed. (boot: invalid format - format error\n" +
			"boot.order: invalid format - invalid boot device 'floppy0')"},
		{"agent type=virtio", "Parameter verification failed. (agent: invalid format - format error\nagent.enabled: " +
			"property is missing and it is not optional)"},
		{"vga std,memory=1024", "Parameter verification failed. (vga: invalid format - format error\nvga.memory: value " +
			"must have a maximum value of 512)"},
		{
			"virtio0 tank:1,ssd=1",
			"Parameter verification failed. (virtio0: invalid format - invalid key in comma-separated list property: ssd)",
		},
		{
			"sata0 tank:1,iothread=1",
			"Parameter verification failed. (sata0: invalid format - invalid key in comma-separated list property: iothread)",
		},
		{
			"scsi0 tank:1,cache=writesome",
			"Parameter verification failed. (scsi0: invalid format - format error\nscsi0.cache: value 'writesome' " +
				"does not have a value in the enumeration 'none, writethrough, writeback, unsafe, directsync')",
		},
		{"hostpci0 host=0000:01:00.0", "only root can set 'hostpci0' config for non-mapped devices"},
		{"hostpci0 pcie=1", "either 'host' or 'mapping' must be set."},
		{"hostpci0 mapping=gpu,pcie=x", "Parameter verification failed. (hostpci0: invalid format - format error\n" +
			"hostpci0.pcie: type check ('boolean') failed - got 'x')"},
		{
			"hostpci0 mapping=gpu,colour=red",
			"Parameter verification failed. (hostpci0: invalid format - invalid key in comma-separated list property: colour)",
		},
		{"hostpci0 host=0000:01", "Parameter verification failed. (hostpci0: invalid format - format error\n" +
			"hostpci0.host: value does not match the regex pattern)"},
		{"args -foo", "only root can set 'args' config"},
		{"serial0 /dev/ttyS0", "only root can set 'serial0' config for real devices"},
		{"balloon x", "Parameter verification failed. (balloon: type check ('integer') failed - got 'x')"},
		{"ipconfig0 ip=10.0.0.1", "Parameter verification failed. (ipconfig0: invalid format - format error\n" +
			"ipconfig0.ip: invalid format - value does not look like a valid ipv4 network configuration)"},
		{"ipconfig0 gw=10.0.0.1", "Parameter verification failed. (ipconfig0: invalid format - format error\n" +
			"ipconfig0.ip: missing property - 'ipconfig0.gw' requires this property)"},
		{"nonsense 1", "Parameter verification failed. (nonsense: property is not defined in schema and the schema does " +
			"not allow additional properties)"},
	} {
		t.Run(c.setting, func(t *testing.T) {
			upid, err := w.Create(token, "pve1", world.CreateRequest{VMID: 100, Conf: settingsOf([]string{c.setting})})
			if c.want != "" {
				require.EqualError(t, err, c.want)
			} else {
				// Volumes are only looked at in the task.
				require.Regexp(t, "^unable to create VM 100 - ", ended(t, w, upid, err))
			}

			require.Equal(t, before, w.Snapshot())
		})
	}

	_, err := w.Create(token, "pve2", world.CreateRequest{VMID: 9000})
	require.EqualError(t, err, "unable to create VM 9000 - VM 9000 already exists on node 'pve1'")
}

func TestTheMachineThatAPowerOnFinds(t *testing.T) {
	w, f := newWorld(t)
	require.NoError(t, w.AddSnippet("pve1", "local", "user.yaml", "machine: {}"))

	create(t, w, 100,
		"name node", "cores 2", "sockets 2", "memory 2048", "agent 1", "smbios1 uuid=11111111-2222-4333-8444-555555555555",
		"scsi0 tank:8", "scsi1 tank:9", "ide0 local:iso/talos.iso,media=cdrom", "ide2 tank:cloudinit",
		"boot order=scsi0;ide0",
		"net0 virtio=bc:24:11:00:00:0a,bridge=vmbr0,tag=7", "ipconfig0 ip=10.0.0.5/24,gw=10.0.0.1",
		"nameserver 1.1.1.1 8.8.8.8",
		"cicustom user=local:snippets/user.yaml",
	)

	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)

	hw := f.last()
	require.Equal(t, "pve1", hw.Host)
	require.Equal(t, 100, hw.VMID)
	require.Equal(t, "node", hw.Name)
	require.Equal(t, "11111111-2222-4333-8444-555555555555", hw.UUID)
	require.Equal(t, 4, hw.Cores)
	require.Equal(t, 2048, hw.MemoryMiB)
	require.True(t, hw.AgentDevice)
	require.Equal(t, []machine.NIC{{MAC: "BC:24:11:00:00:0A", Bridge: "vmbr0", VLAN: 7}}, hw.NICs)
	require.Equal(t, &machine.CloudInit{
		Format: "nocloud", Hostname: "node", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		DNS:      []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8")}, UserData: "machine: {}",
	}, hw.CloudInit)

	require.Len(t, hw.Disks, 2)
	require.Equal(t, "scsi0", hw.Disks[0].Interface)
	require.Equal(t, 9*world.GiB, hw.Disks[1].Size())

	// The disk comes first and is blank, so the medium boots; once something is on the disk, the disk does.
	require.Equal(t, []machine.BootDevice{{Medium: image("iso")}}, hw.Boot)
	hw.Disks[0].Write(image("installed"))
	hw.Reset()
	require.Eventually(t, func() bool { return len(f.last().Boot) == 2 }, 5e9, 1e6)
	require.Equal(t, image("installed"), f.last().Boot[0].Disk.Content())
}

func TestATemplateFromNothing(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "template 1", "scsi0 tank:1")
	require.Equal(t, "tank:base-100-disk-0,size=1G", config(t, w, "pve1", 100)["scsi0"])
	require.Contains(t, volumes(w), "tank:base-100-disk-0")
}

func TestImportFromAVolume(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "scsi0 tank:0,import-from=local:iso/talos.iso")
	require.Equal(t, "tank:vm-100-disk-0,size=100M", config(t, w, "pve1", 100)["scsi0"])

	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)
	require.Equal(t, image("iso"), f.last().Boot[0].Disk.Content())
}
