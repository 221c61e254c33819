package guests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
)

// commandLine is one of qemu-server 8.3.13, without what says nothing about the hardware.
const commandLine = `/usr/bin/kvm
-id
7777
-name
a,,b,debug-threads=on
-no-shutdown
-smbios
type=1,uuid=1874a07d-1cfb-442c-8a66-666d01cdf52b
-drive
if=pflash,unit=1,id=drive-efidisk0,format=raw,file=/dev/pve/vm-7777-disk-0,size=540672
-smp
2,sockets=1,cores=2,maxcpus=2
-m
2048
-device
vfio-pci,host=0000:01:00.0,id=hostpci0.0,bus=ich9-pcie-port-1,addr=0x0.0,multifunction=on
-device
vfio-pci,host=0000:01:00.1,id=hostpci0.1,bus=ich9-pcie-port-1,addr=0x0.1
-chardev
socket,path=/var/run/qemu-server/7777.qga,server=on,wait=off,id=qga0
-device
virtserialport,chardev=qga0,name=org.qemu.guest_agent.0
-drive
file=/dev/pve/vm-7777-cloudinit,if=none,id=drive-ide2,media=cdrom,format=raw,aio=io_uring
-device
ide-cd,bus=ide.1,unit=0,drive=drive-ide2,id=ide2
-drive
if=none,id=drive-ide3,media=cdrom,aio=io_uring
-device
ide-cd,bus=ide.3,unit=0,drive=drive-ide3,id=ide3,bootindex=101
-drive
file=/dev/pve/vm-7777-disk-1,if=none,id=drive-scsi0,discard=on,format=raw,cache=none
-device
scsi-hd,bus=virtioscsi0.0,channel=0,scsi-id=0,lun=0,drive=drive-scsi0,id=scsi0,bootindex=100
-netdev
type=tap,id=net0,ifname=tap7777i0
-device
virtio-net-pci,mac=bc:24:11:E1:B9:BE,netdev=net0,bus=pci.0,addr=0x12,id=net0
-machine
type=q35+pve1`

func TestCommandLine(t *testing.T) {
	t.Parallel()

	q, err := parse([]byte(strings.ReplaceAll(commandLine, "\n", "\x00") + "\x00"))
	require.NoError(t, err)
	assert.Equal(t, &qemu{
		hw: machine.Hardware{
			VMID: 7777, Name: "a,b", UUID: "1874a07d-1cfb-442c-8a66-666d01cdf52b", Cores: 2, MemoryMiB: 2048, AgentDevice: true,
			UEFI: true,
			NICs: []machine.NIC{{MAC: "BC:24:11:E1:B9:BE"}}, PCI: []string{"0000:01:00.0", "0000:01:00.1"},
		},
		drives: []drive{
			{id: "ide2", file: "/dev/pve/vm-7777-cloudinit", format: "raw", cdrom: true},
			{id: "ide3", format: "raw", cdrom: true, bootIndex: 101},
			{id: "scsi0", file: "/dev/pve/vm-7777-disk-1", format: "raw", bootIndex: 100},
		},
	}, q)

	_, err = parse([]byte("sleep\x0060\x00"))
	require.ErrorContains(t, err, "without -id and -smbios")

	_, err = parse([]byte("kvm\x00-m\x00much\x00"))
	require.ErrorContains(t, err, "-m much")
}
