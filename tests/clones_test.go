package tests

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
)

// fiveClones are five clones of one template, one at a time.
const fiveClones = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: home, bootstrap: external, versions: { talos: v1.12.4 } }
  talos-proxmox:image: { source: template, template: { control: talos-v1.12.4-base, worker: talos-v1.12.4-base, parallelClones: 1 } }
  talos-proxmox:network: { cidr: 192.168.10.0/24, gateway: 192.168.10.1 }
  talos-proxmox:lifecycle: { taskTimeout: 4m }
  talos-proxmox:pools:
    control: { role: controlplane, count: 3, addresses: 192.168.10.11-19 }
    worker: { role: worker, count: 2, addresses: 192.168.10.21-49 }
`

// TestLocks: while a lock holds the template, nothing is cloned, and all is when it has gone; clones of one template
// are made one at a time. A lock holds a disk back in the same way.
func TestLocks(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, fiveClones))
	w := r.Lab.World()

	template, there := w.Snapshot().VM("talos-v1.12.4-base")
	require.True(t, there)
	require.NoError(t, w.SetLock(template.ID, "backup"))

	unlock := func(call string, id int) {
		r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Proxmox, Call: regexp.MustCompile(call), Skip: 1, Kind: journal.Interfere,
			Before: func(journal.Entry) { assert.NoError(t, w.SetLock(id, "")) },
		})
	}

	unlock(`^POST .*/clone$`, template.ID)
	assert.Contains(t, upResult(t, r.Stack).StdOut, "retrying create due to on-error hook request")

	var order []string

	for _, e := range r.Lab.Journal().Entries() {
		if m := regexp.MustCompile(`^POST .*/(clone|status/start)$`).FindStringSubmatch(e.Call); m != nil {
			order = append(order, m[1])
		}
	}

	want := []string{"clone"} // which the lock has refused
	for range 5 {
		want = append(want, "clone", "status/start")
	}

	assert.Equal(t, want, order)
	requireNoChange(t, r.Stack)

	worker := vmids(r)["home-worker-1"]
	require.NoError(t, w.SetLock(worker, "backup"))
	unlock(`^PUT .*/resize$`, worker)
	set(t, r.Stack, "pools.worker.diskGiB", "60")
	up(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, "home-worker-1")["scsi0"], "size=60G")
	requireNoChange(t, r.Stack)
}
