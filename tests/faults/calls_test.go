package faults

import (
	"testing"

	"github.com/stretchr/testify/assert"

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

	for pattern, want := range map[string][]Effect{
		"GET /nodes/{host}/qemu/{vm}/config": {Refused, Reset, TimedOut},
		"POST /nodes/{host}/qemu/{vm}/clone": {
			Refused, Reset, TimedOut, Unanswered, TaskFailed, TaskFailedLate,
			Taken,
		},
		"POST /nodes/{host}/qemu": {
			Refused, Reset, TimedOut, Unanswered, TaskFailed, TaskFailedLate,
			Taken,
		},
		"PUT /nodes/{host}/qemu/{vm}/config": {Refused, Reset, TimedOut, Unanswered, Locked, Busy},
		"POST /nodes/{host}/qemu/{vm}/status/start": {
			Refused, Reset, TimedOut, Unanswered, TaskFailed, TaskFailedLate,
			Locked, Busy,
		},
		"DELETE /cluster/mapping/pci/{mapping}": {Refused, Reset, TimedOut, Unanswered},
	} {
		assert.Equal(t, want, Call{journal.Proxmox, pattern}.Effects(), pattern)
	}

	assert.Equal(t, []Effect{Refused, Reset}, Call{journal.SSH, "qm set"}.Effects())
	assert.Equal(t, []Effect{Refused, Reset, TimedOut, Unanswered},
		Call{journal.Talos, "/machine.MachineService/Bootstrap"}.Effects())
	assert.Equal(t, []Effect{Refused, Reset, TimedOut, Truncated, Replaced},
		Call{journal.Factory, "GET /image/{image}"}.Effects())
}
