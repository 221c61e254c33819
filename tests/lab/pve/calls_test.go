package pve_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
)

// TestAllCalls makes every kind of read call, on a world in which there is something to see.
func TestAllCalls(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	f.ok("POST", "/pools", "poolid", "talos", "comment", "nodes")
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/9000/clone", "newid", "401", "name", "cp-1", "pool", "talos",
		"full", "1"))
	require.Nil(t, f.ok("PUT", "/nodes/pve1/qemu/401/config", "tags", "talos", "agent", "1", "serial0", "socket"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/401/config", "cores", "4"))
	require.Equal(t, "OK", f.task("PUT", "/nodes/pve1/qemu/401/resize", "disk", "scsi0", "size", "42949672960"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/401/status/start", "timeout", "1800"))

	config := f.object(f.ok("GET", "/nodes/pve1/qemu/401/config"))
	require.InDelta(t, 4, config["cores"], 0)
	require.Equal(t, "2048", config["memory"])
	require.Equal(t, "tank:vm-401-disk-0,size=40G", config["scsi0"])

	status := f.object(f.ok("GET", "/nodes/pve1/qemu/401/status/current"))
	require.Equal(t, "running", status["status"])
	require.Equal(t, "running", status["qmpstatus"])
	require.InDelta(t, 1, status["agent"], 0)
	require.Equal(t, map[string]any{"managed": 0.0}, status["ha"])
	require.NotContains(t, status, "lock")
	require.NotContains(t, status, "template")

	vms := f.list(f.ok("GET", "/cluster/resources", "type", "vm"))
	require.Len(t, vms, 2)
	require.Equal(t, "qemu/401", vms[0]["id"])
	require.Equal(t, "talos", vms[0]["pool"])
	require.Equal(t, "talos", vms[0]["tags"])
	require.InDelta(t, 0, vms[0]["template"], 0)
	require.InDelta(t, 1, vms[1]["template"], 0)

	all := f.list(f.ok("GET", "/cluster/resources"))
	require.Len(t, all, 1+2+2+6+2, "a pool, VMs, hosts, storages, networks")

	list := f.list(f.ok("GET", "/nodes/pve1/qemu"))
	require.Len(t, list, 2)
	require.InDelta(t, 1, list[1]["template"], 0)
	require.Empty(t, f.ok("GET", "/nodes/pve2/qemu"))

	require.Len(t, f.list(f.ok("GET", "/nodes")), 2)
	require.Equal(t, "online", f.list(f.ok("GET", "/nodes"))[0]["status"])
	require.Contains(t, f.object(f.ok("GET", "/nodes/pve1/status")), "cpuinfo")
	require.Equal(t, "vmbr0", f.list(f.ok("GET", "/nodes/pve1/network"))[0]["iface"])
	require.Len(t, f.list(f.ok("GET", "/nodes/pve1/network", "type", "bridge")), 2)
	f.ok("GET", "/nodes/pve1/time")
	f.ok("GET", "/nodes/pve1/dns")
	f.ok("GET", "/nodes/pve1/version")

	require.Equal(t, "9.2.11", f.object(f.ok("GET", "/version"))["version"])
	require.Equal(t, "100", f.ok("GET", "/cluster/nextid"))
	require.Equal(t, map[string]string{"vmid": "VM 401 already exists"},
		f.call("GET", "/cluster/nextid", "vmid", "401").Errors)
	require.Len(t, f.list(f.ok("GET", "/cluster/status")), 3)
	f.ok("GET", "/cluster/options")
	require.NotEmpty(t, f.list(f.ok("GET", "/cluster/tasks")))
	require.NotEmpty(t, f.list(f.ok("GET", "/nodes/pve1/tasks", "vmid", "401", "limit", "2")))
	require.Empty(t, f.ok("GET", "/cluster/ha/resources"))
	require.Equal(t, "500 no such resource 'vm:401'", f.call("GET", "/cluster/ha/resources/vm:401").status())
	require.Contains(t, f.object(f.ok("GET", "/access/permissions")), "/")
	f.ok("GET", "/access/domains")
	require.Equal(t, "root@pam", f.list(f.ok("GET", "/access/users"))[1]["userid"])
	require.Empty(t, f.ok("GET", "/access/groups"))
	require.Contains(t, f.list(f.ok("GET", "/access/roles")), map[string]any{
		"roleid": "PVEVMUser", "special": 1.0,
		"privs": "VM.Audit,VM.Backup,VM.Config.CDROM,VM.Config.Cloudinit,VM.Console,VM.GuestAgent.Audit," +
			"VM.GuestAgent.FileRead," +
			"VM.GuestAgent.FileSystemMgmt,VM.GuestAgent.FileWrite,VM.PowerMgmt",
	})
	require.Equal(t, map[string]any{"VM.Audit": 1.0, "VM.Clone": 1.0},
		f.object(f.ok("GET", "/access/roles/PVETemplateUser")))
	require.Equal(t, "500 role 'missing' does not exist", f.call("GET", "/access/roles/missing").status())
	require.Contains(t, f.object(f.ok("GET", "/nodes/pve1/hosts"))["data"], "127.0.0.1 localhost")

	pending := f.list(f.ok("GET", "/nodes/pve1/qemu/401/pending"))
	require.Contains(t, pending, map[string]any{"key": "cores", "value": 4.0})

	require.Equal(t, "500 QEMU guest agent is not running",
		f.call("GET", "/nodes/pve1/qemu/401/agent/network-get-interfaces").status())
	require.Equal(t, "500 QEMU guest agent is not running", f.call("POST", "/nodes/pve1/qemu/401/agent/ping").status())

	testStorages(f)
	testPools(f)

	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/401/status/reboot", "timeout", "1800"))
	require.Eventually(t, func() bool {
		return f.object(f.ok("GET", "/nodes/pve1/qemu/401/status/current"))["status"] == "running"
	}, 10*time.Second, 10*time.Millisecond, "it starts once the task has ended")
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/401/status/reset"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/401/status/shutdown", "forceStop", "1", "timeout", "1800"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/401/status/stop"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/401/migrate", "target", "pve2", "with-local-disks", "1"))
	require.Equal(t, "400 Parameter verification failed.",
		f.call("POST", "/nodes/pve2/qemu/401/status/stop", "skiplock", "1").status())
	require.Nil(t, f.ok("PUT", "/nodes/pve2/qemu/401/cloudinit"))
	require.Nil(t, f.ok("PUT", "/nodes/pve2/qemu/401/unlink", "idlist", "scsi0", "force", "1"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve2/qemu/401/template"))
	require.Equal(t, "OK", f.task("DELETE", "/nodes/pve2/qemu/401"))

	require.NoError(t, f.journal.Unknown())
}

func testStorages(f *face) {
	f.Helper()

	require.Len(f, f.list(f.ok("GET", "/storage")), 4)
	require.Equal(f, "/var/lib/vz", f.object(f.ok("GET", "/storage/local"))["path"])
	require.Len(f, f.list(f.ok("GET", "/nodes/pve1/storage", "content", "iso", "enabled", "1")), 1)

	state := f.object(f.ok("GET", "/nodes/pve1/storage/tank/status"))
	require.InDelta(f, 100<<30, state["total"], 0)
	require.InDelta(f, 50<<30, state["used"], 0)
	require.InDelta(f, 0, state["shared"], 0)

	require.Equal(f, []map[string]any{
		{
			"volid": "tank:vm-401-disk-0", "content": "images", "format": "raw", "size": float64(40 << 30), "vmid": 401.0,
			"ctime": "now",
		},
	}, withoutClock(f.list(f.ok("GET", "/nodes/pve1/storage/tank/content", "vmid", "401"))))

	volume := f.object(f.ok("GET", "/nodes/pve1/storage/tank/content/tank:vm-401-disk-0"))
	require.Equal(f, "raw", volume["format"])
	require.Equal(f, "500 volume 'tank:gone' does not exist",
		f.call("GET", "/nodes/pve1/storage/tank/content/tank:gone").status())
	require.Equal(f, map[string]string{"storage": "No such storage."},
		f.call("GET", "/nodes/pve1/storage/gone/status").Errors)

	require.Equal(f, "OK", f.task("DELETE", "/nodes/pve1/storage/local/content/local:iso%2Ftalos.iso"))
	require.Empty(f, f.ok("GET", "/nodes/pve1/storage/local/content"))
}

// withoutClock makes entries that may have been made a second ago comparable.
func withoutClock(list []map[string]any) []map[string]any {
	for _, e := range list {
		if _, ok := e["ctime"]; ok {
			e["ctime"] = "now"
		}
	}

	return list
}

func testPools(f *face) {
	f.Helper()

	require.Equal(f, []map[string]any{{"poolid": "talos", "comment": "nodes"}}, f.list(f.ok("GET", "/pools")))

	pool := f.object(f.ok("GET", "/pools/talos"))
	require.Equal(f, "qemu/401", f.list(pool["members"])[0]["id"])
	require.Len(f, f.list(f.ok("GET", "/pools", "poolid", "talos")), 1)

	f.ok("PUT", "/pools/talos", "vms", "401", "delete", "1")
	f.ok("PUT", "/pools", "poolid", "talos", "vms", "401", "comment", "")
	f.ok("PUT", "/pools/talos", "vms", "401", "delete", "1")
	f.ok("DELETE", "/pools/talos")
	require.Equal(f, "500 pool 'talos' does not exist", f.call("GET", "/pools/talos").status())
}

// Many clients at once, on the same VMs and on others: nothing panics, nothing hangs, nothing is left.
func TestManyClients(t *testing.T) {
	f := serve(t, timeline.Latencies{Clone: time.Millisecond, Start: time.Millisecond})
	before := f.world.Snapshot()

	var wait sync.WaitGroup

	for n := range 12 {
		wait.Go(func() {
			id := []string{"401", "402", "403"}[n%3]

			for range 5 {
				for _, c := range [][]string{
					{"POST", "/nodes/pve1/qemu/9000/clone", "newid", id},
					{"GET", "/nodes/pve1/qemu/" + id + "/status/current"},
					{"PUT", "/nodes/pve1/qemu/" + id + "/config", "cores", "3", "scsi1", "tank:1"},
					{"GET", "/cluster/resources", "type", "vm"},
					{"POST", "/nodes/pve1/qemu/" + id + "/status/start"},
					{"GET", "/nodes/pve1/qemu/" + id + "/config"},
					{"POST", "/nodes/pve1/qemu/" + id + "/status/reset"},
					{"GET", "/nodes/pve1/storage/tank/content"},
					{"PUT", "/nodes/pve1/qemu/" + id + "/resize", "disk", "scsi0", "size", "+1G"},
					{"POST", "/nodes/pve1/qemu/" + id + "/status/stop"},
					{"DELETE", "/nodes/pve1/qemu/" + id, "purge", "1", "destroy-unreferenced-disks", "1"},
					{"GET", "/nodes/pve1/tasks"},
				} {
					f.call(c[0], c[1], c[2:]...)
				}
			}
		})
	}

	wait.Wait()

	for _, id := range []string{"401", "402", "403"} {
		require.Eventually(t, func() bool {
			f.call("POST", "/nodes/pve1/qemu/"+id+"/status/stop")
			a := f.call("DELETE", "/nodes/pve1/qemu/"+id, "destroy-unreferenced-disks", "1")

			return a.status() == "500 Configuration file 'nodes/pve1/qemu-server/"+id+".conf' does not exist"
		}, 20*time.Second, 5*time.Millisecond)
	}

	require.Equal(t, before, f.world.Snapshot())
	require.NoError(t, f.journal.Unknown())
}
