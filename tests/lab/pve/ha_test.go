package pve_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

const haPath = "/cluster/ha/resources"

func TestHighAvailabilityAsTheProviderAsksForIt(t *testing.T) {
	f := serveVersion(t, world.Version8, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))

	require.Equal(t, []map[string]any{
		{"group": "racks", "type": "group", "nodes": "pve1:2,pve2", "comment": "both", "restricted": 1.0},
	}, f.list(f.ok("GET", "/cluster/ha/groups")))
	require.Equal(t, "racks", f.object(f.ok("GET", "/cluster/ha/groups/racks"))["group"])
	require.Equal(t, "500 no such ha group 'none'", f.call("GET", "/cluster/ha/groups/none").status())

	f.ok("POST", haPath, "sid", "vm:101", "state", "stopped", "group", "racks", "max_restart", "2", "comment", "a node")

	r := f.object(f.ok("GET", haPath+"/vm:101"))
	require.Regexp(t, "^[0-9a-f]{40}$", r["digest"])
	digest := r["digest"].(string)
	delete(r, "digest")
	require.Equal(t, map[string]any{
		"sid": "vm:101", "type": "vm", "state": "stopped", "group": "racks", "max_restart": 2.0, "comment": "a node",
	}, r)
	require.Equal(t, "vm:101", f.object(f.ok("GET", haPath+"/101"))["sid"])

	f.ok("PUT", haPath+"/vm:101", "state", "disabled", "max_relocate", "3", "delete", "comment,max_restart", "digest",
		digest)
	r = f.list(f.ok("GET", haPath, "type", "vm"))[0]
	delete(r, "digest")
	require.Equal(t, map[string]any{
		"sid": "vm:101", "type": "vm", "state": "disabled", "group": "racks",
		"max_relocate": 3.0,
	}, r)

	f.ok("DELETE", haPath+"/vm:101")
	require.Equal(t, "500 no such resource 'vm:101'", f.call("GET", haPath+"/vm:101").status())
	require.Equal(t, "500 cannot delete service 'vm:101', not HA managed!", f.call("DELETE", haPath+"/vm:101").status())
	require.Empty(t, f.ok("GET", haPath))
	require.NoError(t, f.journal.Unknown())
}

func TestHAResourcesThatAreRefused(t *testing.T) {
	f := serveVersion(t, world.Version8, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "102"))
	f.ok("POST", haPath, "sid", "vm:101", "state", "stopped")

	for _, c := range []struct {
		method, path string
		pairs        []string
		want         string
	}{
		{"POST", "", []string{"sid", "vm:109"}, "500 resource 'vm:109' does not exist in cluster"},
		{"POST", "", []string{"sid", "ct:101"}, "500 resource 'ct:101' does not exist in cluster"},
		{"POST", "", []string{"sid", "109"}, "500 unable do detect SID from VMID - VM/CT 109 does not exist"},
		{"POST", "", []string{"sid", "vm:101"}, "500 create resource failed: resource ID 'vm:101' already defined"},
		{"POST", "", []string{"sid", "vm:102", "type", "ct"}, "500 types does not match"},
		{"POST", "", []string{"sid", "vm:102", "state", "idle"}, "400 Parameter verification failed."},
		{"POST", "", []string{"sid", "vm:102", "max_restart", "-1"}, "400 Parameter verification failed."},
		{"PUT", "/vm:101", []string{"group", "none"}, "500 HA group 'none' does not exist"},
		{"PUT", "/vm:102", []string{"state", "started"}, "500 update resources config failed: no such resource 'vm:102'"},
		{"PUT", "/vm:101", []string{"delete", "colour"}, "500 update resources config failed: no such option 'colour'"},
	} {
		require.Equal(t, c.want, f.call(c.method, haPath+c.path, c.pairs...).status(), c.pairs)
	}

	// A group that does not exist is not noticed when the resource is made, but shows from then on.
	f.ok("POST", haPath, "sid", "vm:102", "state", "stopped", "group", "none")
	require.Equal(t, map[string]any{"group": "group 'none' does not exist"}, f.list(f.ok("GET", haPath))[1]["errors"])
	require.NoError(t, f.journal.Unknown())
}

// What high availability manages, it starts and stops itself: tasks about it end before that is done.
func TestHighAvailabilityKeepsAVMAsItShouldBe(t *testing.T) {
	f := serveVersion(t, world.Version8, timeline.Latencies{Start: 20 * time.Millisecond})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))

	status := func() map[string]any { return f.object(f.ok("GET", "/nodes/pve1/qemu/101/status/current")) }
	until := func(power, state string) {
		t.Helper()
		require.Eventually(t, func() bool {
			s := status()

			return s["status"] == power && f.object(s["ha"])["state"] == state
		}, 10*time.Second, time.Millisecond)
	}

	f.ok("POST", haPath, "sid", "vm:101", "group", "racks")
	require.Equal(t, map[string]any{"managed": 1.0, "group": "racks", "state": "starting"}, status()["ha"])
	until("running", "started")
	require.Equal(t, "started", f.list(f.ok("GET", "/cluster/resources", "type", "vm"))[0]["hastate"])

	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/status/shutdown", "timeout", "60", "forceStop", "1"))
	require.Contains(t, f.world.Tasks("pve1")[1].UPID, ":hastop:101:")
	until("stopped", "stopped")
	require.Equal(t, "stopped", f.object(f.ok("GET", haPath+"/vm:101"))["state"])

	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/status/start"))
	require.Equal(t, "stopped", status()["status"], "the task ends before the VM runs")
	until("running", "started")

	// A reboot is the VM's own.
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/status/reboot"))
	until("running", "started")

	// It moves by request, too.
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/migrate", "target", "pve2", "online", "1"))
	require.Eventually(t, func() bool {
		return f.list(f.ok("GET", "/cluster/resources", "type", "vm"))[0]["node"] == "pve2"
	}, 10*time.Second, time.Millisecond)

	// It is destroyed only together with its entry there.
	require.Equal(t, "OK", f.task("POST", "/nodes/pve2/qemu/101/status/stop"))
	require.Eventually(t, func() bool {
		return f.object(f.ok("GET", "/nodes/pve2/qemu/101/status/current"))["status"] == "stopped"
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, "500 unable to remove VM 101 - used in HA resources and purge parameter not set.",
		f.call("DELETE", "/nodes/pve2/qemu/101").status())
	require.Equal(t, "OK", f.task("DELETE", "/nodes/pve2/qemu/101", "purge", "1"))
	require.Empty(t, f.ok("GET", haPath))
	require.NoError(t, f.journal.Unknown())
}

func TestPrivilegesOfHighAvailability(t *testing.T) {
	f := serveVersion(t, world.Version8, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))
	f.asLeast()

	for _, c := range []struct {
		method, path string
		pairs        []string
		needs        string
	}{
		{"GET", "/cluster/ha/groups", nil, "Sys.Audit"},
		{"GET", "/cluster/ha/groups/racks", nil, "Sys.Audit"},
		{"GET", haPath, nil, "Sys.Audit"},
		{"POST", haPath, []string{"sid", "vm:101", "state", "ignored"}, "Sys.Console"},
		{"GET", haPath + "/vm:101", nil, "Sys.Audit"},
		{"PUT", haPath + "/vm:101", []string{"comment", "x"}, "Sys.Console"},
		{"DELETE", haPath + "/vm:101", nil, "Sys.Console"},
	} {
		f.privileged(c.method, c.path, c.pairs, "/, "+c.needs, "/", c.needs)
	}
}

// TestHARules: Proxmox VE 9 has rules instead of groups, and none that cannot be kept.
func TestHARules(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	for _, id := range []string{"101", "102", "103"} {
		require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", id))
	}

	for _, id := range []string{"101", "102"} {
		f.ok("POST", haPath, "sid", "vm:"+id, "state", "stopped")
	}

	const rules = "/cluster/ha/rules"

	f.ok("POST", rules, "rule", "home", "type", "node-affinity", "resources", "vm:102,vm:101", "nodes", "pve2,pve1:2",
		"comment", "a pool")

	r := f.object(f.ok("GET", rules+"/home"))
	digest := r["digest"].(string)
	delete(r, "digest")
	require.Equal(t, map[string]any{
		"rule": "home", "type": "node-affinity", "resources": "vm:101,vm:102", "nodes": "pve1:2,pve2", "comment": "a pool",
		"order": 1.0,
	}, r)

	for _, c := range []struct {
		method, path string
		pairs        []string
		want         string
	}{
		{"GET", "/cluster/ha/groups", nil, "500 cannot index groups: ha groups have been migrated to rules"},
		{"GET", "/cluster/ha/groups/a", nil, "500 cannot read group: ha groups have been migrated to rules"},
		{
			"POST", haPath,
			[]string{"sid", "vm:103", "group", "racks"},
			"500 invalid parameter 'group': ha groups have been migrated to rules",
		},
		{"GET", rules + "/none", nil, "500 no such ha rule 'none'"},
		{
			"POST", rules,
			[]string{"rule", "home", "type", "node-affinity", "resources", "vm:101", "nodes", "pve1"},
			"500 create ha rule failed: HA rule 'home' already defined",
		},
		{
			"POST", rules,
			[]string{"rule", "b2", "type", "node-affinity", "resources", "vm:103", "nodes", "pve1"},
			"500 create ha rule failed: cannot use unmanaged resource(s) vm:103.",
		},
		{
			"PUT", rules + "/home",
			[]string{"type", "node-affinity", "nodes", "pve9"},
			"500 update HA rules failed: cannot use non-existent node(s) pve9.",
		},
		{
			"PUT", rules + "/home",
			[]string{"type", "node-affinity", "nodes", "pve1", "digest", "x"},
			"500 update HA rules failed: detected modified configuration - file changed by other user? Try again.",
		},
		{
			"POST", rules,
			[]string{"rule", "apart", "type", "resource-affinity", "resources", "vm:101", "affinity", "negative"},
			"500 create ha rule failed: 400 Rule 'apart' is invalid.",
		},
		{
			"POST", rules,
			[]string{"rule", "apart", "type", "resource-affinity", "resources", "vm:101,vm:102", "affinity", "negative"},
			"500 create ha rule failed: 400 Rule 'apart' is invalid.",
		},
	} {
		require.Equal(t, c.want, f.call(c.method, c.path, c.pairs...).status(), c.pairs)
	}

	// Without different priorities, both can be kept.
	f.ok("PUT", rules+"/home", "type", "node-affinity", "nodes", "pve1,pve2", "digest", digest)
	f.ok("POST", rules, "rule", "apart", "type", "resource-affinity", "resources", "vm:101,vm:102", "affinity", "negative")
	require.Len(t, f.list(f.ok("GET", rules, "type", "resource-affinity")), 1)
	require.Equal(t, "500 update HA rules failed: 400 Rule 'home' is invalid.",
		f.call("PUT", rules+"/home", "type", "node-affinity", "nodes", "pve1").status(), "two apart need two hosts")

	// What leaves high availability leaves its rules.
	f.ok("DELETE", haPath+"/vm:101")
	require.Equal(t, "vm:102", f.object(f.ok("GET", rules+"/home"))["resources"])
	f.ok("DELETE", haPath+"/vm:102")
	require.Empty(t, f.ok("GET", rules))
	f.ok("DELETE", rules+"/home")
	require.NoError(t, f.journal.Unknown())

	eight := serveVersion(t, world.Version8, timeline.Latencies{})
	require.Equal(t, "501 Method 'GET /cluster/ha/rules' not implemented", eight.call("GET", rules).status())
}
