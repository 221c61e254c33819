package lab_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/machine"
)

// image is what stands for an operating system image in these tests.
type image string

func (i image) CloneContent() machine.Content { return i }

// firmware boots anything and remembers what it found.
type firmware struct {
	mu    sync.Mutex
	boots []machine.Hardware
	dhcp  func(string) (netip.Addr, bool)
	// silent systems have no guest agent; stubborn ones do not shut down.
	silent, stubborn bool
}

type system struct {
	firmware *firmware
	hw       machine.Hardware
}

func (f *firmware) PowerOn(hw machine.Hardware) machine.System {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boots = append(f.boots, hw)

	return &system{f, hw}
}

func (f *firmware) seen() []machine.Hardware {
	f.mu.Lock()
	defer f.mu.Unlock()

	return append([]machine.Hardware(nil), f.boots...)
}

func (s *system) Shutdown(ctx context.Context) error {
	if s.firmware.stubborn {
		<-ctx.Done()

		return ctx.Err()
	}

	return nil
}

func (s *system) Kill() {}

func (s *system) Agent() []machine.Interface {
	if s.firmware.silent || !s.hw.AgentDevice {
		return nil
	}

	list := []machine.Interface{{Name: "lo", Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}}

	for _, nic := range s.hw.NICs {
		i := machine.Interface{Name: "eth0", MAC: nic.MAC}
		if addr, ok := s.firmware.dhcp(nic.MAC); ok {
			i.Addresses = []netip.Prefix{netip.PrefixFrom(addr, 16), netip.MustParsePrefix("fd00::1/64")}
		}

		list = append(list, i)
	}

	return list
}

// start runs a lab of one host with a template.
func start(t *testing.T, change ...func(*lab.Config)) (*lab.Lab, *firmware) {
	t.Helper()

	f := &firmware{}
	c := lab.Config{
		Hosts: []lab.Host{{Name: "pve", Storages: []lab.Storage{
			{Name: "tank", Type: "lvmthin", Content: []string{"images"}},
			{Name: "local", Type: "dir", Content: []string{"iso", "images", "snippets"}},
		}}},
		Templates: []lab.Template{{
			Name: "talos-v1.12.4-base", VMID: 9000, Host: "pve", Storage: "tank", DiskGiB: 10, Content: image("talos"),
		}},
		Firmware: func(s lab.Services) machine.Firmware {
			f.dhcp = s.DHCP

			return f
		},
	}

	for _, fn := range change {
		fn(&c)
	}

	l, err := lab.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())

		if !t.Failed() {
			require.NoError(t, l.Journal().Unknown())
		}
	})

	return l, f
}

func client(l *lab.Lab, options ...proxmox.Option) *proxmox.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the lab signs its own certificate
	options = append(options, proxmox.WithHTTPClient(&http.Client{Transport: transport, Timeout: 30 * time.Second}))

	return proxmox.NewClient(l.Endpoint()+"/api2/json", options...)
}

func byToken(l *lab.Lab) *proxmox.Client {
	return client(l, proxmox.WithAPIToken(l.Credentials().TokenID, l.Credentials().TokenSecret))
}

func wait(t *testing.T, task *proxmox.Task, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, task.Wait(t.Context(), 10*time.Millisecond, 20*time.Second))
	require.Equal(t, "OK", task.ExitStatus)
}

func TestLifeOfAClone(t *testing.T) {
	l, f := start(t)
	before := l.World().Snapshot()
	c := byToken(l)

	node, err := c.Node(t.Context(), "pve")
	require.NoError(t, err)

	template, err := node.VirtualMachine(t.Context(), 9000)
	require.NoError(t, err)
	require.True(t, bool(template.Template))

	id, task, err := template.Clone(t.Context(), &proxmox.VirtualMachineCloneOptions{NewID: 401, Full: 1, Name: "cp-1"})
	require.Equal(t, 401, id)
	wait(t, task, err)

	vm, err := node.VirtualMachine(t.Context(), 401)
	require.NoError(t, err)
	require.Equal(t, "cp-1", vm.Name)
	require.Equal(t, "tank:vm-401-disk-0,size=10G", vm.VirtualMachineConfig.SCSI0)
	require.Regexp(t, `^virtio=BC:24:11(:[0-9A-F]{2}){3},bridge=vmbr0,firewall=1$`, vm.VirtualMachineConfig.Net0)

	task, err = vm.Config(t.Context(),
		proxmox.VirtualMachineOption{Name: "cores", Value: 4},
		proxmox.VirtualMachineOption{Name: "memory", Value: 8192},
		proxmox.VirtualMachineOption{Name: "agent", Value: "enabled=1"},
		proxmox.VirtualMachineOption{Name: "net0", Value: "model=virtio,bridge=vmbr0,macaddr=BC:24:11:00:00:01"},
	)
	wait(t, task, err)

	task, err = vm.ResizeDisk(t.Context(), "scsi0", "40G")
	wait(t, task, err)

	l.Reserve(map[string]netip.Addr{"bc:24:11:00:00:01": netip.MustParseAddr("127.3.0.11")})

	task, err = vm.Start(t.Context())
	wait(t, task, err)
	require.NoError(t, vm.Ping(t.Context()))
	require.True(t, vm.IsRunning())

	boots := f.seen()
	require.Len(t, boots, 1)
	require.Equal(t, 4, boots[0].Cores)
	require.Equal(t, 8192, boots[0].MemoryMiB)
	require.Equal(t, 40<<30, int(boots[0].Disks[0].Size()))
	require.Equal(t, image("talos"), boots[0].Boot[0].Disk.Content())

	interfaces, err := vm.AgentGetNetworkIFaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, "BC:24:11:00:00:01", interfaces[0].HardwareAddress)
	require.Equal(t, "127.3.0.11", interfaces[0].IPAddresses[0].IPAddress)

	task, err = vm.Shutdown(t.Context())
	wait(t, task, err)
	require.NoError(t, vm.Ping(t.Context()))
	require.True(t, vm.IsStopped())

	task, err = vm.Delete(t.Context())
	wait(t, task, err)
	require.Equal(t, before, l.World().Snapshot())
}
