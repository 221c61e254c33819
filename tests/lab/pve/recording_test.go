package pve_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/recording"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// TestRecordings: the lab answers what the program and the provider ask as real servers have answered: status, errors,
// ends of tasks, and of the data the same keys and types. The few other answers are listed, each with a reason.
func TestRecordings(t *testing.T) {
	storages := []world.Storage{
		{Name: "local", Type: "dir", Content: []string{"iso", "vztmpl", "backup", "snippets", "import"}},
		{Name: "local-lvm", Type: "lvmthin", Content: []string{"images"}},
		{Name: "local-dir", Type: "dir", Content: []string{"images"}},
		{Name: "shared", Type: "dir", Content: []string{"images", "iso", "import", "snippets"}, Shared: true},
	}
	setups := map[recording.Setup][]string{recording.Host: {"pve"}, recording.Cluster: {"pve", "pve2", "pve3"}}
	known, seen := knownDifferences(t), map[string]bool{}

	for _, version := range []world.Version{world.Version8, world.Version9} {
		for setup, names := range setups {
			t.Run(string(setup)+" "+string(version), func(t *testing.T) {
				recorded, err := recording.Recorded(setup, string(version))
				require.NoError(t, err)

				options := world.Options{Version: version, Firmware: agents{}}
				for _, name := range names {
					options.Hosts = append(options.Hosts, world.Host{
						Name: name, Bridges: []string{"vmbr0"}, PCI: world.GPU("0000:01:00", 1), Storages: storages,
					})
				}

				f := serveWorld(t, options)
				s := recording.Server{Endpoint: f.url, Authorization: f.header.Get("Authorization")}
				answers, err := s.Ask(t.Context(), recording.Requests(setup, version.Major()))
				require.NoError(t, err)
				require.Equal(t, len(recorded), len(answers), "record again: the requests are others")

				for i, a := range answers {
					require.Equal(t, recorded[i].Request, a.Request, "record again: the requests are others")

					for _, d := range a.Differences(recorded[i]) {
						difference := anyOf.Replace(recording.Plain(a.Request)) + ": " + d
						if known[difference] == "" {
							t.Errorf("%s: %s", a.Request, d)
						}

						seen[difference] = true
					}
				}
			})
		}
	}

	if !t.Failed() {
		for difference := range known {
			assert.True(t, seen[difference], "no difference any more: %s", difference)
		}
	}
}

// anyOf makes the names of hosts and VMs those of the first.
var anyOf = strings.NewReplacer("/pve2/", "/pve/", "/pve3/", "/pve/", "/7002/", "/7001/")

// agents boots guests that have a guest agent and nothing else.
type agents struct{}

func (agents) PowerOn(hw machine.Hardware) machine.System {
	return &agent{nics: hw.NICs, files: map[string]string{}}
}

type agent struct {
	nics  []machine.NIC
	files map[string]string
}

func (*agent) Shutdown(context.Context) error { return nil }

func (*agent) Kill() {}

func (a *agent) Agent() []machine.Interface {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}
	all := []machine.Interface{{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: loopback}}

	for _, n := range a.nics {
		address := netip.MustParsePrefix("192.168.1.5/24")
		all = append(all, machine.Interface{Name: "eth0", MAC: n.MAC, Addresses: []netip.Prefix{address}})
	}

	return all
}

func (a *agent) ReadFile(path string) (string, error) {
	text, there := a.files[path]
	if !there {
		return "", fmt.Errorf("failed to open file '%s' (mode: 'r'): No such file or directory", path)
	}

	return text, nil
}

func (a *agent) WriteFile(path, text string) error {
	if strings.HasSuffix(path, "/") {
		return fmt.Errorf("failed to open file '%s' (mode: 'wb'): Is a directory", path)
	}

	a.files[path] = text

	return nil
}

// knownDifferences are lines "request: difference # reason", whoever sends the request, and to whatever host and VM.
func knownDifferences(t *testing.T) map[string]string {
	t.Helper()

	text, err := os.ReadFile("../recording/differences.txt")
	require.NoError(t, err)

	found := map[string]string{}

	for line := range strings.Lines(string(text)) {
		row, reason, ok := strings.Cut(strings.TrimSpace(line), " # ")
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}

		require.True(t, ok, "%s has no reason", row)
		found[row] = reason
	}

	return found
}

// TestUnrecorded: the journal names what was asked and never recorded of this version.
func TestUnrecorded(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	f.ok("GET", "/version")
	f.ok("GET", "/nodes/pve2/storage/local/status")
	assert.Empty(t, f.journal.Unrecorded(), "recorded of another host")

	f.ok("GET", "/cluster/firewall/macros")
	f.ok("GET", "/cluster/firewall/macros")
	assert.Equal(t, []string{"GET /cluster/firewall/macros"}, f.journal.Unrecorded())

	f.ok("GET", "/nodes/pve1/qemu/9000/config", "current", "1")
	f.ok("POST", "/nodes/pve1/qemu", "vmid", "7001", "net3", "virtio,bridge=vmbr0", "tags", "a")
	assert.Equal(t, []string{"GET /cluster/firewall/macros"}, f.journal.Unrecorded(), "other numbers are recorded")

	f.ok("PUT", "/nodes/pve1/qemu/9000/config", "rng0", "source=/dev/urandom", "cores", "2")
	assert.Equal(t, []string{"GET /cluster/firewall/macros", "PUT /nodes/{node}/qemu/{vmid}/config?rng0"}, f.journal.Unrecorded())
	require.NoError(t, f.journal.Unknown())
}

// TestUnplayed: the journal names the settings that are kept, and that nothing of the lab heeds.
func TestUnplayed(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	f.ok("PUT", "/nodes/pve1/qemu/9000/config", "cores", "2", "localtime", "0")
	assert.Empty(t, f.journal.Ignored())

	f.ok("PUT", "/nodes/pve1/qemu/9000/config", "watchdog", "model=i6300esb", "rng0", "source=/dev/urandom")
	assert.Equal(t, []string{"the setting rng0 of VMs", "the setting watchdog of VMs"}, f.journal.Ignored())
	require.NoError(t, f.journal.Unknown())
}
