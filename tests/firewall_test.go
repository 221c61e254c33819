package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

// TestFirewall brings a cluster up behind firewalls, opens something in addition, and holds what Proxmox VE was told.
func TestFirewall(t *testing.T) {
	t.Parallel()

	p := pair{"template", "metal", "", "reserved"}
	r := rehearse(t, stackFile(t, p.stack()+"  talos-proxmox:firewall: { enabled: true }\n"))

	// A clone has the rules of its template: that is refused before anything is made.
	template, there := r.Lab.World().Snapshot().VM("talos-v1.12.4-base")
	require.True(t, there)

	ofTemplate := world.FirewallScope{VMID: template.ID}
	require.NoError(t, r.Lab.World().AddFirewallRule(ofTemplate, world.FirewallRule{
		"type": "in", "action": "ACCEPT", "proto": "tcp", "dport": "22", "enable": "1",
	}))

	const ruled = "must be a template without firewall rules, and this one has 1, the first one: in ACCEPT tcp 22; " +
		"a clone would have them, too"

	assert.Contains(t, failPreview(t, r.Stack), ruled)
	assert.Contains(t, failUp(t, r.Stack), ruled)
	assert.Empty(t, vmids(r))
	require.NoError(t, r.Lab.World().DeleteFirewallRule(ofTemplate, 0, ""))

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireSettled(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, "pair-worker-1")["net0"], "firewall=1")

	network := r.To.String()
	rules := func(node string) string {
		v, there := r.Lab.World().Snapshot().VM(node)
		require.True(t, there)

		var lines []string

		held, _, err := r.Lab.World().FirewallRules(world.FirewallScope{VMID: v.ID})
		require.NoError(t, err)

		for _, rule := range held {
			lines = append(lines, strings.Join([]string{
				rule["comment"], rule["action"], rule["proto"], rule["dport"], "from",
				rule["source"],
			}, " "))
		}

		return strings.Join(lines, "\n")
	}

	worker := "apid ACCEPT tcp 50000 from " + network + "\nkubelet ACCEPT tcp 10250 from " + network + ",10.244.0.0/16\n" +
		"icmp ACCEPT icmp  from " + network + "\nflannel-vxlan ACCEPT udp 4789 from " + network
	assert.Equal(t, worker, rules("pair-worker-1"))
	assert.Contains(t, rules("pair-control-1"), "etcd ACCEPT tcp 2379:2380 from "+addressOf(r, "pair-control-1"))

	datacenter := func(enable string) {
		require.NoError(t, r.Lab.World().SetFirewallOptions(world.FirewallScope{}, map[string]string{"enable": enable}, nil, ""))
	}

	const off = "has no effect on Proxmox VE yet: the firewall of its datacenter is off"

	datacenter("0")
	assert.Contains(t, previewOf(t, r.Stack), off)
	datacenter("1")
	assert.NotContains(t, previewOf(t, r.Stack), off)

	before := vmids(r)
	scope := world.FirewallScope{VMID: before["pair-worker-1"]}

	// The provider writes rules by their position: one of the operator's, before all others, would be deleted.
	require.NoError(t, r.Lab.World().AddFirewallRule(scope, world.FirewallRule{
		"type": "in", "action": "DROP", "proto": "tcp", "dport": "10250", "comment": "not from here", "enable": "1",
	}))

	set(t, r.Stack, "firewall.open[0].name", "web")
	set(t, r.Stack, "firewall.open[0].ports", "443")
	set(t, r.Stack, "firewall.open[0].pools[0]", "worker")

	const theirs = "has a firewall rule that this program has not written, at position 0 " +
		`(in DROP tcp 10250 "not from here")`

	held := rules("pair-worker-1")

	assert.Contains(t, failPreview(t, r.Stack), theirs)
	assert.Contains(t, failUp(t, r.Stack), theirs)
	assert.Equal(t, held, rules("pair-worker-1"))
	require.NoError(t, r.Lab.World().DeleteFirewallRule(scope, 0, ""))

	up(t, r.Stack)
	assert.Equal(t, worker+"\nopen-web ACCEPT tcp 443 from "+network, rules("pair-worker-1"))
	assert.Equal(t, before, vmids(r))
	requireSettled(t, r.Stack)

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}
