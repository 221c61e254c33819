package faults

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
)

// TestCallOf: calls that do the same are of one kind, and the kind finds them again and no others.
func TestCallOf(t *testing.T) {
	t.Parallel()

	made := map[journal.Entry]string{
		{
			Face: journal.Proxmox,
			Call: "POST /nodes/pve/qemu/9000/clone",
		}: "POST /nodes/{host}/qemu/{vm}/clone",
		{Face: journal.Proxmox, Call: "POST /nodes/pve/qemu"}: "POST /nodes/{host}/qemu",
		{
			Face: journal.Proxmox,
			Call: "DELETE /nodes/pve/qemu/401",
		}: "DELETE /nodes/{host}/qemu/{vm}",
		{
			Face: journal.Proxmox,
			Call: "GET /nodes/pve/storage/local/content",
		}: "GET /nodes/{host}/storage/{store}/content",
		{
			Face: journal.Proxmox,
			Call: "DELETE /nodes/pve/storage/local/content/local:iso%2Fa.iso",
		}: "DELETE /nodes/{host}/storage/{store}/content/{volume}",
		{Face: journal.Proxmox, Call: "PUT /cluster/mapping/pci/small-gpu-1"}: "PUT /cluster/mapping/pci/{mapping}",
		//
		{
			Face: journal.Proxmox,
			Call: "GET /nodes/pve/tasks/UPID:pve:0000:0001:6740:qmclone:9000:pulumi@pve%21talos:/status",
		}: "GET /nodes/{host}/tasks/{qmclone}/status",
		//
		{
			Face: journal.Proxmox,
			Call: "GET /nodes/pve/tasks/UPID%3Apve%3A0000%3A0001%3A6740%3Aqmstart%3A401%3Aroot@pam%3A/status",
		}: "GET /nodes/{host}/tasks/{qmstart}/status",
		{
			Face: journal.Talos, Subject: "small-control-1",
			Call: "/machine.MachineService/Bootstrap",
		}: "/machine.MachineService/Bootstrap",
		{Face: journal.Factory, Call: "GET /image/0123/v1.12.4/nocloud-amd64.iso"}:        "GET /image/{image}",
		{Face: journal.SSH, Call: "/usr/sbin/qm set 401 --scsi0 local-lvm:vm-401-disk-0"}: "qm set",
		{Face: journal.SSH, Call: "login root"}:                                           "login root",
		{Face: journal.Kubernetes, Call: "DELETE /api/v1/nodes/small-worker-1"}:           "DELETE /api/v1/nodes/{node}",
	}

	for e, want := range made {
		c, ok := CallOf(e)
		assert.True(t, ok, e.Call)
		assert.Equal(t, want, c.Pattern)

		for other := range made {
			assert.Equal(t, other == e, c.expression().MatchString(other.Call), "%s and %s", c, other.Call)
		}
	}

	_, ok := CallOf(journal.Entry{Face: journal.Kubernetes, Call: "PATCH /api/v1/nodes/small-worker-1/status"})
	assert.False(t, ok, "a kubelet's")
}

func TestEffects(t *testing.T) {
	t.Parallel()

	var (
		any     = []Effect{Refused, Reset, TimedOut}
		answers = []Effect{Unauthorized, Denied, Throttled, BadGateway, Page, HalfAnswer, HeldAnswer}
		comes   = slices.Sorted(maps.Keys(events))
		tasks   = []Effect{TaskFailed, TaskFailedLate, TaskHangs}
		changes = slices.Concat(any, []Effect{Unanswered}, answers)
	)

	for pattern, want := range map[string][]Effect{
		"GET /nodes/{host}/qemu/{vm}/config":        slices.Concat(any, answers),
		"POST /nodes/{host}/qemu/{vm}/clone":        slices.Concat(changes, comes, tasks, []Effect{Taken}),
		"POST /nodes/{host}/qemu":                   slices.Concat(changes, comes, tasks, []Effect{Taken}),
		"PUT /nodes/{host}/qemu/{vm}/config":        slices.Concat(changes, comes, []Effect{Locked, Busy}),
		"POST /nodes/{host}/qemu/{vm}/status/start": slices.Concat(changes, comes, tasks, []Effect{Locked, Busy}),
		"DELETE /cluster/mapping/pci/{mapping}":     changes,
	} {
		assert.Equal(t, want, Call{journal.Proxmox, pattern}.Effects(), pattern)
	}

	assert.Equal(t, []Effect{Refused, Reset}, Call{journal.SSH, "qm set"}.Effects())
	assert.Equal(t, []Effect{Refused, Reset, TimedOut, Unanswered},
		Call{journal.Talos, "/machine.MachineService/Bootstrap"}.Effects())
	assert.Equal(t, []Effect{Refused, Reset, TimedOut, Truncated, Replaced},
		Call{journal.Factory, "GET /image/{image}"}.Effects())
}

// TestLeftOut: what a sample has no case of is named.
func TestLeftOut(t *testing.T) {
	t.Parallel()

	all := []Case{
		{Stage: Create, Effect: Reset},
		{Stage: Create, Effect: Reset, Last: true},
		{Stage: Create, Effect: Reset, Lasts: true},
		{Stage: Remove, Effect: Reset},
		{Stage: Remove, Effect: NoQuorum},
		{Stage: Create, Effect: NoQuorum},
	}

	assert.Equal(t, []string{"no quorum", "reset (remove)", "reset for good"}, leftOut(all, all[1:2]))
	assert.Empty(t, leftOut(all, all))
}

// TestEventsAndPlants: each effect that a call can have is one or the other.
func TestEventsAndPlants(t *testing.T) {
	t.Parallel()

	for _, pattern := range []string{"POST /nodes/{host}/qemu", "DELETE /nodes/{host}/qemu/{vm}"} {
		for _, effect := range (Call{journal.Proxmox, pattern}).Effects() {
			_, planted := plants[effect]
			assert.NotEqual(t, planted, events[effect] != nil, "%s", effect)
		}
	}
}

// TestReliability: the page for operators tells of each effect, and the tests that it names exist.
func TestReliability(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../../stacks/docs/reliability.md")
	require.NoError(t, err)

	for _, effect := range slices.Concat(slices.Collect(maps.Keys(plants)), slices.Collect(maps.Keys(events))) {
		assert.Contains(t, string(page), "`"+string(effect)+"`")
	}

	tests := map[string]bool{}

	for _, dir := range []string{"../../../tests", "../../../components", "../../../stacks"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}

			text, err := os.ReadFile(path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				tests[m[1]] = true
			}

			return err
		}))
	}

	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	assert.Greater(t, len(named), 20)

	for _, m := range named {
		assert.True(t, tests[m[1]], "no test is called %s", m[1])
	}
}
