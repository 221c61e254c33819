package pve_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
)

const mapped = "id=10de:2204,subsystem-id=10de:147d,node=pve1,path=0000:01:00.0,iommugroup=1"

func TestTheDevicesOfAHost(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	card := map[string]any{
		"id": "0000:01:00.0", "class": "0x030000", "vendor": "0x10de", "device": "0x2204", "iommugroup": 1.0,
		"vendor_name": "NVIDIA Corporation", "device_name": "GA102 [GeForce RTX 3090]",
		"subsystem_vendor": "0x10de", "subsystem_device": "0x147d", "subsystem_vendor_name": "NVIDIA Corporation",
	}

	list := f.list(f.ok("GET", "/nodes/pve1/hardware/pci"))
	require.Len(t, list, 2)
	require.Equal(t, card, list[0])

	require.Equal(t, []map[string]any{
		{"id": "0000:01:00.0", "class": "0x030000", "vendor": "0x10de", "device": "0x2204", "iommugroup": 1.0},
		{"id": "0000:01:00.1", "class": "0x040300", "vendor": "0x10de", "device": "0x1aef", "iommugroup": 1.0},
	}, f.list(f.ok("GET", "/nodes/pve1/hardware/pci", "verbose", "0", "pci-class-blacklist", "")))
	require.Len(t, f.list(f.ok("GET", "/nodes/pve1/hardware/pci", "pci-class-blacklist", "0403;05")), 1)

	require.Empty(t, f.ok("GET", "/nodes/pve2/hardware/pci"))
	require.Len(t, f.list(f.ok("GET", "/nodes/pve1/hardware")), 2)
	require.NoError(t, f.journal.Unknown())
}

func TestMappings(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	f.ok("POST", "/cluster/mapping/pci", "id", "gpu", "map", mapped, "map", "id=10de:2204,node=pve2,path=0000:02:00.0",
		"mdev", "0")
	require.Equal(t, "500 create hardware mapping failed: pci ID 'gpu' already defined",
		f.call("POST", "/cluster/mapping/pci", "id", "gpu", "map", mapped).status())

	m := f.object(f.ok("GET", "/cluster/mapping/pci/gpu"))
	require.Equal(t, []any{mapped, "id=10de:2204,node=pve2,path=0000:02:00.0"}, m["map"])
	require.Equal(t, "pci", m["type"])
	require.NotContains(t, m, "mdev")
	require.Regexp(t, "^[0-9a-f]{40}$", m["digest"])

	checks := func(host string) any {
		return f.list(f.ok("GET", "/cluster/mapping/pci", "check-node", host))[0]["checks"]
	}

	require.Empty(t, checks("pve1"))
	require.Equal(t, []any{map[string]any{
		"severity": "error", "message": "Invalid configuration: pci device '0000:02:00.0' not found\n",
	}}, checks("pve2"))

	// What is not given stays.
	f.ok("PUT", "/cluster/mapping/pci/gpu", "map", mapped, "description", "a card", "digest", m["digest"].(string))
	f.ok("PUT", "/cluster/mapping/pci/gpu", "map", mapped, "live-migration-capable", "1")

	m = f.list(f.ok("GET", "/cluster/mapping/pci"))[0]
	require.Equal(t, "gpu", m["id"])
	require.Equal(t, []any{mapped}, m["map"])
	require.Equal(t, "a card", m["description"])
	require.InDelta(t, 1, m["live-migration-capable"], 0)
	require.Equal(t, []any{map[string]any{"severity": "warning", "message": "No mapping for node pve2."}}, checks("pve2"))

	f.ok("PUT", "/cluster/mapping/pci/gpu", "map", mapped, "delete", "description,live-migration-capable")
	m = f.object(f.ok("GET", "/cluster/mapping/pci/gpu"))
	require.NotContains(t, m, "description")
	require.NotContains(t, m, "live-migration-capable")

	f.ok("POST", "/cluster/mapping/usb", "id", "key", "map", "id=1050:0407,node=pve1")
	require.Equal(t, "usb", f.list(f.ok("GET", "/cluster/mapping/usb"))[0]["type"])

	f.ok("DELETE", "/cluster/mapping/pci/gpu")
	f.ok("DELETE", "/cluster/mapping/pci/gpu")
	require.Equal(t, "500 mapping 'gpu' not found", f.call("GET", "/cluster/mapping/pci/gpu").status())
	require.NoError(t, f.journal.Unknown())
}

func TestMappingsThatAreRefused(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	f.ok("POST", "/cluster/mapping/pci", "id", "gpu", "map", mapped)

	for _, c := range []struct {
		method, path string
		pairs        []string
		status       string
		errors       map[string]string
	}{
		{
			"POST", "",
			[]string{"id", "gpu2"},
			"400 Parameter verification failed.",
			map[string]string{"map": "property is missing and it is not optional"},
		},
		{"POST", "", []string{"id", "2gpu", "map", mapped}, "400 Parameter verification failed.", map[string]string{
			"id": "invalid format - invalid configuration ID '2gpu'",
		}},
		{
			"POST", "",
			[]string{"id", "gpu2", "map", mapped, "map", "id=10de:2204,path=x"},
			"400 Parameter verification failed.",
			map[string]string{
				"map[1]": "invalid format - format error\nmap[1].node: property is missing and it is not optional\n" +
					"map[1].path: value does not match the regex pattern",
			},
		},
		{
			"POST", "",
			[]string{"id", "gpu2", "map", mapped + ",colour=red"},
			"400 Parameter verification failed.",
			map[string]string{
				"map[0]": "invalid format - invalid key in comma-separated list property: colour",
			},
		},
		{"PUT", "/gpu2", []string{"map", mapped}, "500 update hardware mapping failed: pci ID 'gpu2' does not exist", nil},
		{
			"PUT", "/gpu",
			[]string{"description", "x"},
			"500 update hardware mapping failed: missing value for required option 'map'", nil,
		},
		{
			"PUT", "/gpu",
			[]string{"map", mapped, "delete", "map"},
			"500 update hardware mapping failed: unable to delete required option 'map'", nil,
		},
		{
			"PUT", "/gpu",
			[]string{"map", mapped, "delete", "colour"},
			"500 update hardware mapping failed: no such option 'colour'", nil,
		},
		{
			"PUT", "/gpu",
			[]string{"map", mapped, "mdev", "1", "delete", "mdev"},
			"500 update hardware mapping failed: cannot set and delete property 'mdev' at the same time!", nil,
		},
		{
			"PUT", "/gpu",
			[]string{"map", mapped, "digest", "0"},
			"500 update hardware mapping failed: detected modified configuration - file changed by other user? Try again.", nil,
		},
	} {
		a := f.call(c.method, "/cluster/mapping/pci"+c.path, c.pairs...)
		require.Equal(t, c.status, a.status())
		require.Equal(t, c.errors, a.Errors)
	}

	require.NoError(t, f.journal.Unknown())
}

// Each call about hardware with the privilege that it needs, and without it.
func TestPrivilegesOfHardware(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	f.ok("POST", "/cluster/mapping/pci", "id", "gpu", "map", mapped)
	f.asLeast()

	for _, c := range []struct {
		method, path string
		pairs        []string
		needs, on    string
		any          []string
	}{
		{"GET", "/nodes/pve1/hardware/pci", nil, "/, Sys.Audit|Sys.Modify", "/", []string{"Sys.Audit", "Sys.Modify"}},
		{
			"GET", "/cluster/mapping/pci/gpu", nil, "",
			"/mapping/pci/gpu",
			[]string{"Mapping.Use", "Mapping.Modify", "Mapping.Audit"},
		},
		{
			"POST", "/cluster/mapping/pci",
			[]string{"id", "gpu2", "map", mapped},
			"/mapping/pci, Mapping.Modify",
			"/mapping/pci",
			[]string{"Mapping.Modify"},
		},
		{
			"PUT", "/cluster/mapping/pci/gpu",
			[]string{"map", mapped},
			"/mapping/pci/gpu, Mapping.Modify", "/mapping/pci/gpu",
			[]string{"Mapping.Modify"},
		},
		{
			"DELETE", "/cluster/mapping/pci/gpu", nil, "/mapping/pci, Mapping.Modify", "/mapping/pci",
			[]string{"Mapping.Modify"},
		},
	} {
		f.privileged(c.method, c.path, c.pairs, c.needs, c.on, c.any...)
	}
}

const least = "pulumi@pve!least"

// asLeast makes what follows the calls of a token that may do nothing.
func (f *face) asLeast() {
	f.world.AddToken(least, "s")
	f.header.Set("Authorization", "PVEAPIToken="+least+"=s")
}

// privileged makes a call that needs one of several privileges on a path: once without any, and once with each.
func (f *face) privileged(method, path string, pairs []string, denied, on string, any ...string) {
	f.Helper()

	want := "403 Permission check failed"
	if denied != "" {
		want += " (" + denied + ")"
	}

	require.Equal(f, want, f.call(method, path, pairs...).status(), "%s %s", method,
		path)

	for _, p := range any {
		f.world.Grant(least, on, p)
		f.ok(method, path, pairs...)
		f.world.Grant(least, on)
	}
}
