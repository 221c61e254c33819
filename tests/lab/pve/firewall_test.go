package pve_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

const fwPath = "/nodes/pve1/qemu/101/firewall"

// addRules makes rules as the provider does: the last first, since each goes before the others.
func addRules(f *face, path string, rules ...[]string) {
	f.Helper()

	for i := len(rules) - 1; i >= 0; i-- {
		f.ok("POST", path, rules[i]...)
	}
}

// ports are the destination ports of the rules in their order.
func ports(f *face, path string) []string {
	f.Helper()

	out := []string{}

	for i, r := range f.list(f.ok("GET", path)) {
		require.InDelta(f, i, r["pos"], 0)
		port, _ := r["dport"].(string)
		out = append(out, port)
	}

	return out
}

func TestFirewallOptionsAsTheProviderSetsThem(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))

	require.Equal(t, map[string]any{"digest": "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
		f.object(f.ok("GET", fwPath+"/options")))

	f.ok("PUT", fwPath+"/options", "dhcp", "0", "enable", "1", "ipfilter", "0", "log_level_in", "info", "log_level_out",
		"nolog", "macfilter", "1",
		"ndp", "1", "policy_in", "DROP", "policy_out", "ACCEPT", "radv", "0")

	o := f.object(f.ok("GET", fwPath+"/options"))
	digest := o["digest"].(string)
	delete(o, "digest")
	require.Equal(t, map[string]any{
		"dhcp": 0.0, "enable": 1.0, "ipfilter": 0.0, "log_level_in": "info", "log_level_out": "nolog", "macfilter": 1.0,
		"ndp":       1.0,
		"policy_in": "DROP", "policy_out": "ACCEPT", "radv": 0.0,
	}, o)

	f.ok("PUT", fwPath+"/options", "delete", "radv,ndp", "enable", "0", "digest", digest)
	require.Equal(t, "500 detected modified configuration - file changed by other user? Try again.",
		f.call("PUT", fwPath+"/options", "enable", "1", "digest", digest).status())

	options, _ := f.world.FirewallOptions(world.FirewallScope{VMID: 101})
	require.NotContains(t, options, "radv")
	require.Equal(t, "0", options["enable"])

	for _, c := range []struct {
		path  string
		pairs []string
		want  map[string]string
	}{
		{
			fwPath,
			[]string{"policy_in", "HOLD"},
			map[string]string{"policy_in": "value 'HOLD' does not have a value in the enumeration 'ACCEPT, REJECT, DROP'"},
		},
		{fwPath, []string{"enable", "2"}, map[string]string{"enable": "type check ('boolean') failed - got '2'"}},
		{fwPath, []string{"delete", "colour"}, map[string]string{"delete": "no such option 'colour'"}},
		{clusterFw, []string{"policy_forward", "REJECT"}, map[string]string{
			"policy_forward": "value 'REJECT' does not have a value in the enumeration 'ACCEPT, DROP'",
		}},
		{clusterFw, []string{"log_ratelimit", "enable=1,rate=often"}, map[string]string{
			"log_ratelimit": "invalid format - format error\nlog_ratelimit.rate: value does not match the regex pattern",
		}},
	} {
		a := f.call("PUT", c.path+"/options", c.pairs...)
		require.Equal(t, "400 Parameter verification failed.", a.status())
		require.Equal(t, c.want, a.Errors)
	}

	f.ok("PUT", clusterFw+"/options", "enable", "1", "ebtables", "0", "policy_in", "ACCEPT", "log_ratelimit",
		"enable=1,burst=10,rate=5/second")
	require.InDelta(t, 1, f.object(f.ok("GET", clusterFw+"/options"))["enable"], 0)
	require.NoError(t, f.journal.Unknown())
}

const clusterFw = "/cluster/firewall"

func TestFirewallRulesAsTheProviderMakesThem(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))

	path := fwPath + "/rules"
	addRules(f, path,
		[]string{
			"type", "in", "action", "ACCEPT", "enable", "1", "proto", "tcp", "dport", "50000", "source", "10.0.0.0/16",
			"comment", "Talos API", "log", "nolog",
		},
		[]string{"type", "in", "action", "ACCEPT", "enable", "1", "macro", "https", "iface", "net0"},
		[]string{"type", "in", "action", "ACCEPT", "proto", "icmp", "icmp-type", "echo-request"},
		[]string{"type", "group", "action", "nodes", "enable", "1", "comment", "all nodes", "iface", "net0"},
		[]string{"type", "out", "action", "DROP", "enable", "1", "dest", "fd00::/8,fe80::1"},
	)

	require.Equal(t, []string{"50000", "", "", "", ""}, ports(f, path))

	r := f.object(f.ok("GET", path+"/0"))
	digest := r["digest"].(string)
	delete(r, "digest")
	require.Equal(t, map[string]any{
		"pos": "0", "type": "in", "action": "ACCEPT", "enable": 1.0, "proto": "tcp", "dport": "50000",
		"source": "10.0.0.0/16", "comment": "Talos API",
		"log": "nolog", "ipversion": 4.0,
	}, r)

	rules, _, err := f.world.FirewallRules(world.FirewallScope{VMID: 101})
	require.NoError(t, err)
	require.Equal(t, []world.FirewallRule{
		{"type": "in", "action": "ACCEPT", "enable": "1", "macro": "HTTPS", "iface": "net0"},
		{"type": "in", "action": "ACCEPT", "enable": "0", "proto": "icmp", "icmp-type": "echo-request", "ipversion": "4"},
		{"type": "group", "action": "nodes", "enable": "1", "comment": "all nodes", "iface": "net0"},
		{"type": "out", "action": "DROP", "enable": "1", "dest": "fd00::/8,fe80::1", "ipversion": "6"},
	}, rules[1:])

	// An update has the position in the path and among the fields.
	f.ok("PUT", path+"/0", "pos", "0", "type", "in", "action", "ACCEPT", "enable", "1", "proto", "tcp", "dport",
		"50000:50001", "source", "10.1.0.0/16", "comment", "-",
		"digest", digest)
	require.Equal(t, "500 detected modified configuration - file changed by other user? Try again.",
		f.call("PUT", path+"/0", "dport", "1", "digest", digest).status())

	r = f.object(f.ok("GET", path+"/0"))
	require.Equal(t, "50000:50001", r["dport"])
	require.Equal(t, "10.1.0.0/16", r["source"])
	require.NotContains(t, r, "comment")

	f.ok("PUT", path+"/0", "delete", "source,log")
	r = f.object(f.ok("GET", path+"/0"))
	require.NotContains(t, r, "source")
	require.NotContains(t, r, "ipversion")

	// Positions close up.
	f.ok("DELETE", path+"/1")
	require.Equal(t, "echo-request", f.object(f.ok("GET", path+"/1"))["icmp-type"])

	for _, method := range []string{"GET", "PUT", "DELETE"} {
		require.Equal(t, "500 no rule at position 4", f.call(method, path+"/4").status())
	}

	require.Equal(t, map[string]string{"pos": "value must have a minimum value of 0"}, f.call("GET", path+"/-1").Errors)
	require.NoError(t, f.journal.Unknown())
}

func TestFirewallRulesMove(t *testing.T) {
	for _, c := range []struct {
		pos, to string
		want    []string
	}{
		{"0", "2", []string{"2", "1", "3", "4"}},
		{"0", "9", []string{"2", "3", "4", "1"}},
		{"3", "0", []string{"4", "1", "2", "3"}},
		{"1", "3", []string{"1", "3", "2", "4"}},
		{"2", "2", []string{"1", "2", "3", "4"}},
	} {
		f := serve(t, timeline.Latencies{})

		for _, port := range []string{"4", "3", "2", "1"} {
			f.ok("POST", fwPath+"/rules", "type", "in", "action", "ACCEPT", "proto", "tcp", "dport", port)
		}

		f.ok("PUT", fwPath+"/rules/"+c.pos, "moveto", c.to)
		require.Equal(t, c.want, ports(f, fwPath+"/rules"), "%s to %s", c.pos, c.to)
	}
}

func TestFirewallRulesThatAreRefused(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	f.ok("POST", clusterFw+"/groups", "group", "nodes")

	for _, c := range []struct {
		path  string
		pairs []string
		want  map[string]string
	}{
		{
			fwPath + "/rules",
			[]string{"action", "ACCEPT"},
			map[string]string{"type": "property is missing and it is not optional"},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "LET"}, map[string]string{"action": "unknown action 'LET'"}},
		{fwPath + "/rules", []string{"type", "both", "action", "DROP"}, map[string]string{
			"type": "value 'both' does not have a value in the enumeration 'in, out, forward, group'",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "forward", "action", "DROP"},
			map[string]string{"type": "invalid rule type 'forward' for rule_env 'vm'"},
		},
		{
			clusterFw + "/rules",
			[]string{"type", "forward", "action", "REJECT"},
			map[string]string{"action": "cannot define REJECT rules on forward chain"},
		},
		{
			clusterFw + "/groups/nodes",
			[]string{"type", "group", "action", "nodes"},
			map[string]string{"type": "invalid rule type 'group' for rule_env 'group'"},
		},
		{clusterFw + "/groups/nodes", []string{"type", "in", "action", "DROP", "iface", "net0"}, map[string]string{
			"type": "parameter -i not allowed for this rule type",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "iface", "vmbr0"},
			map[string]string{"iface": `value does not match the regex pattern 'net\d+'`},
		},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "macro", "Kubernetes"},
			map[string]string{"macro": "unknown macro 'Kubernetes'"},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "macro", "SSH", "proto", "udp"}, map[string]string{
			"proto": "parameter 'proto' already define in macro (value = 'tcp')",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "macro", "DNS", "proto", "udp", "dport", "54"},
			map[string]string{
				"dport": "parameter 'dport' already define in macro (value = '53')",
			},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "dport", "6443"}, map[string]string{
			"proto": "missing property - 'dport' requires this property",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "proto", "gre", "dport", "6443"},
			map[string]string{"dport": "protocol 'gre' does not support ports"},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "proto", "tcp", "dport", "6443,"}, map[string]string{
			"dport": "invalid format - extraneous commas in list",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "proto", "tcp", "dport", "70000"},
			map[string]string{"dport": "invalid format - invalid port '70000'"},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "proto", "tcp", "dport", "2380:2379"}, map[string]string{
			"dport": "invalid format - backwards range '2380:2379' not allowed, did you mean '2379:2380'?",
		}},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "proto", "tcp", "dport", "2379-2380"}, map[string]string{
			"dport": "invalid format - invalid port '2379-2380'",
		}},
		{fwPath + "/rules", []string{
			"type", "in", "action", "DROP", "proto", "tcp", "dport",
			"1:2,3:4,5:6,7:8,9:10,11:12,13:14,15:16",
		}, map[string]string{
			"dport": "invalid format - too many entries in port list (> 15 numbers)",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "proto", "tpc"},
			map[string]string{"proto": "invalid format - unknown protocol 'tpc'"},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "icmp-type", "echo-request"}, map[string]string{
			"proto": "missing property - 'icmp-type' requires this property",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "proto", "icmpv6", "icmp-type", "source-quench"},
			map[string]string{
				"icmp-type": "invalid icmp-type 'source-quench' for proto 'icmpv6'",
			},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "source", "10.0.0.5/24"}, map[string]string{
			"source": "invalid format - invalid IP address: Invalid prefix 00001010000000000000000000000101/24",
		}},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "source", "10.0.0.0/33"}, map[string]string{
			"source": "invalid format - invalid IP address: Prefix length 33 is longer than IP address (32)",
		}},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "source", "10.0.0.300"}, map[string]string{
			"source": "invalid format - invalid IP address: Cannot determine IP version for 10.0.0.300",
		}},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "source", "10.0.0.0/8,fd00::/8"}, map[string]string{
			"source": "invalid format - detected mixed ipv4/ipv6 addresses in address list '10.0.0.0/8,fd00::/8'",
		}},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "source", "10.0.0.1-10.0.0.9,10.0.0.20"},
			map[string]string{
				"source": "invalid format - you can't use a range in a list",
			},
		},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "source", "10.0.0.0/8", "dest", "fd00::/8"},
			map[string]string{
				"dest": "detected mixed ipv4/ipv6 addresses in rule",
			},
		},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "source", "+nodes"},
			map[string]string{"source": "no such ipset 'nodes'"},
		},
		{
			fwPath + "/rules",
			[]string{"type", "in", "action", "DROP", "source", "office"},
			map[string]string{"source": "no such alias 'office'"},
		},
		{fwPath + "/rules", []string{"type", "in", "action", "DROP", "log", "loud"}, map[string]string{
			"log": "value 'loud' does not have a value in the enumeration 'emerg, alert, crit, err, warning, notice, info, " +
				"debug, nolog'",
		}},
		{
			clusterFw + "/groups",
			[]string{"group", "nodes"},
			map[string]string{"group": "Security group 'nodes' already exists"},
		},
		{
			clusterFw + "/groups",
			[]string{"group", "0nodes"},
			map[string]string{"group": "value does not match the regex pattern"},
		},
		{
			clusterFw + "/groups",
			[]string{"group", "a-name-that-is-too-long"},
			map[string]string{"group": "value may only be 18 characters long"},
		},
	} {
		a := f.call("POST", c.path, c.pairs...)
		require.Equal(t, "400 Parameter verification failed.", a.status(), c.pairs)
		require.Equal(t, c.want, a.Errors)
	}

	require.Empty(t, f.ok("GET", fwPath+"/rules"))
	require.Equal(t, "500 no such security group 'none'",
		f.call("POST", clusterFw+"/groups/none", "type", "in", "action", "DROP").status())
	require.NoError(t, f.journal.Unknown())
}

func TestAFirewallGoesWithItsVM(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))
	f.ok("PUT", fwPath+"/options", "enable", "1")
	f.ok("POST", fwPath+"/rules", "type", "in", "action", "DROP", "proto", "tcp", "dport", "22")

	// A copy has a copy of it.
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/clone", "newid", "102"))
	f.ok("PUT", fwPath+"/rules/0", "dport", "23")
	require.Equal(t, []string{"22"}, ports(f, "/nodes/pve1/qemu/102/firewall/rules"))

	// It moves with the VM, and is gone with it.
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/101/migrate", "target", "pve2"))
	require.Equal(t, []string{"23"}, ports(f, "/nodes/pve2/qemu/101/firewall/rules"))
	require.Equal(t, "OK", f.task("DELETE", "/nodes/pve2/qemu/101"))
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))
	require.Empty(t, f.ok("GET", fwPath+"/rules"))
	require.NotContains(t, f.object(f.ok("GET", fwPath+"/options")), "enable")
	require.NoError(t, f.journal.Unknown())
}

func TestSecurityGroups(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	before := f.world.Snapshot()

	f.ok("POST", clusterFw+"/groups", "group", "nodes", "comment", "all nodes")
	addRules(f, clusterFw+"/groups/nodes", []string{"type", "in", "action", "ACCEPT", "proto", "tcp", "dport", "1"},
		[]string{"type", "in", "action", "ACCEPT", "proto", "tcp", "dport", "2"})
	require.Equal(t, []string{"1", "2"}, ports(f, clusterFw+"/groups/nodes"))
	f.ok("POST", fwPath+"/rules", "type", "group", "action", "nodes")

	g := f.list(f.ok("GET", clusterFw+"/groups"))[0]
	require.Equal(t, "nodes", g["group"])
	require.Equal(t, "all nodes", g["comment"])

	// A group that is renamed keeps its rules, and those who use it.
	f.ok("POST", clusterFw+"/groups", "group", "machines", "rename", "nodes", "digest", g["digest"].(string))
	require.Equal(t, "machines", f.object(f.ok("GET", fwPath+"/rules/0"))["action"])
	require.Equal(t, []string{"1", "2"}, ports(f, clusterFw+"/groups/machines"))
	require.Equal(t, []world.SecurityGroup{{Name: "machines", Comment: "all nodes"}}, f.world.Snapshot().SecurityGroups)

	require.Equal(t, "500 Security group 'machines' is not empty", f.call("DELETE", clusterFw+"/groups/machines").status())
	f.ok("DELETE", clusterFw+"/groups/machines/1")
	f.ok("DELETE", clusterFw+"/groups/machines/0")
	f.ok("DELETE", clusterFw+"/groups/machines")
	require.Equal(t, "500 no such security group 'machines'", f.call("DELETE", clusterFw+"/groups/machines").status())
	require.Equal(t, before, f.world.Snapshot())

	require.Contains(t, f.list(f.ok("GET", clusterFw+"/macros")), map[string]any{"macro": "SSH", "descr": "SSH"})
	require.NoError(t, f.journal.Unknown())
}

func TestIPSets(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	for _, path := range []string{fwPath + "/ipset", clusterFw + "/ipset"} {
		f.ok("POST", path, "name", "nodes", "comment", "addresses")
		f.ok("POST", path+"/nodes", "cidr", "10.0.0.5/24", "comment", "a network")
		f.ok("POST", path+"/nodes", "cidr", "10.0.0.7", "nomatch", "1")

		entries := f.list(f.ok("GET", path+"/nodes"))
		digest := entries[0]["digest"].(string)
		for _, e := range entries {
			delete(e, "digest")
		}

		require.Equal(t, []map[string]any{
			{"cidr": "10.0.0.7", "nomatch": 1.0},
			{"cidr": "10.0.0.0/24", "comment": "a network"},
		}, entries)

		f.ok("PUT", path+"/nodes/10.0.0.0%2F24", "comment", "the network", "digest", digest)
		require.Equal(t, "the network", f.object(f.ok("GET", path+"/nodes/10.0.0.0%2F24"))["comment"])

		for _, c := range []struct{ cidr, want string }{
			{"10.0.0.9/24", "address '10.0.0.0/24' already exists"},
			{"0.0.0.0/0", "a zero prefix is not allowed in ipset entries"},
			{"10.0.0.300", "invalid format - value does not look like a valid IP address or CIDR network"},
		} {
			require.Equal(t, map[string]string{"cidr": c.want}, f.call("POST", path+"/nodes", "cidr", c.cidr).Errors)
		}

		require.Equal(t, map[string]string{"cidr": "no such IP/Network"}, f.call("GET", path+"/nodes/10.9.0.0%2F24").Errors)
		require.Equal(t, map[string]string{"name": "IPSet 'nodes' already exists"},
			f.call("POST", path, "name", "nodes").Errors)
		require.Equal(t, "500 no such IPSet 'none'", f.call("GET", path+"/none").status())

		// Rules name sets.
		f.ok("POST", fwPath+"/rules", "type", "in", "action", "ACCEPT", "source", "+nodes")

		f.ok("POST", path, "name", "machines", "rename", "nodes")
		require.Equal(t, "machines", f.list(f.ok("GET", path))[0]["name"])
		f.ok("DELETE", path+"/machines/10.0.0.0%2F24")
		require.Equal(t, "500 IPSet 'machines' is not empty", f.call("DELETE", path+"/machines").status())
		f.ok("DELETE", path+"/machines", "force", "1")
		require.Empty(t, f.ok("GET", path))
	}

	require.NoError(t, f.journal.Unknown())
}

func TestPrivilegesOfTheFirewall(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu", "vmid", "101"))
	f.ok("POST", clusterFw+"/groups", "group", "nodes")
	f.asLeast()

	rule := []string{"type", "in", "action", "DROP"}
	require.Len(t, f.list(f.ok("GET", clusterFw+"/groups")), 1, "everybody sees the groups")

	for _, base := range []struct{ rules, options, sets, on, see, change string }{
		{fwPath + "/rules", fwPath + "/options", fwPath + "/ipset", "/vms/101", "VM.Audit", "VM.Config.Network"},
		{clusterFw + "/rules", clusterFw + "/options", clusterFw + "/ipset", "/", "Sys.Audit", "Sys.Modify"},
		{clusterFw + "/groups/nodes", clusterFw + "/options", clusterFw + "/ipset", "/", "Sys.Audit", "Sys.Modify"},
	} {
		see := func(path string) { f.privileged("GET", path, nil, base.on+", "+base.see, base.on, base.see) }
		change := func(method, path string, pairs ...string) {
			f.privileged(method, path, pairs, base.on+", "+base.change, base.on, base.change)
		}

		see(base.options)
		change("PUT", base.options, "policy_in", "DROP")
		change("POST", base.rules, rule...)
		see(base.rules)
		see(base.rules + "/0")
		change("PUT", base.rules+"/0", "enable", "1")
		change("DELETE", base.rules+"/0")
		change("POST", base.sets, "name", "nodes")
		see(base.sets)
		change("POST", base.sets+"/nodes", "cidr", "10.0.0.1")
		see(base.sets + "/nodes")
		see(base.sets + "/nodes/10.0.0.1")
		change("PUT", base.sets+"/nodes/10.0.0.1", "comment", "x")
		change("DELETE", base.sets+"/nodes/10.0.0.1")
		change("DELETE", base.sets+"/nodes")
	}

	f.privileged("POST", clusterFw+"/groups", []string{"group", "more"}, "/, Sys.Modify", "/", "Sys.Modify")
	f.privileged("DELETE", clusterFw+"/groups/more", nil, "/, Sys.Modify", "/", "Sys.Modify")
}
