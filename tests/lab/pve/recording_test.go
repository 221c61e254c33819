package pve_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/recording"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// TestRecordings: the lab answers what the program and the provider ask as real servers have answered: status, errors,
// ends of tasks, and of the data the same keys and types. The few other answers are listed, each with a reason.
func TestRecordings(t *testing.T) {
	for _, version := range []world.Version{world.Version8, world.Version9} {
		t.Run(string(version), func(t *testing.T) {
			recorded, err := recording.Recorded(string(version))
			require.NoError(t, err)

			f := serveHosts(t, version, timeline.Latencies{}, []world.Host{{
				Name: "pve", Bridges: []string{"vmbr0"}, PCI: world.GPU("0000:01:00", 1), Storages: []world.Storage{
					{Name: "local", Type: "dir", Content: []string{"iso", "vztmpl", "backup", "snippets", "import"}},
					{Name: "local-lvm", Type: "lvmthin", Content: []string{"images"}},
				},
			}}, nil)

			s := recording.Server{Endpoint: f.url, Authorization: f.header.Get("Authorization")}
			answers, err := s.Ask(t.Context(), recording.Requests(version.Major()))
			require.NoError(t, err)
			require.Len(t, answers, len(recorded), "record again: the requests are others")

			known := knownDifferences(t)

			for i, a := range answers {
				require.Equal(t, recorded[i].Request, a.Request, "record again: the requests are others")

				for _, d := range a.Differences(recorded[i]) {
					assert.Contains(t, known, a.Request+": "+d)
				}
			}
		})
	}
}

// knownDifferences are lines "request: difference # reason".
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

	f.ok("GET", "/access/domains")
	f.ok("GET", "/access/domains")
	assert.Equal(t, []string{"GET /access/domains"}, f.journal.Unrecorded())

	f.ok("GET", "/nodes/pve1/qemu/9000/config", "current", "1")
	f.ok("POST", "/nodes/pve1/qemu", "vmid", "7001", "net3", "virtio,bridge=vmbr0", "tags", "a")
	assert.Equal(t, []string{"GET /access/domains"}, f.journal.Unrecorded(), "other numbers are recorded")

	f.ok("PUT", "/nodes/pve1/qemu/9000/config", "rng0", "source=/dev/urandom", "cores", "2")
	assert.Equal(t, []string{"GET /access/domains", "PUT /nodes/{node}/qemu/{vmid}/config?rng0"}, f.journal.Unrecorded())
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
