package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

// TestHARules: on Proxmox VE 9 the rules of high availability are as the stack says, while nodes come and go and the
// stack changes its mind, and those of others stay as they are.
func TestHARules(t *testing.T) {
	t.Parallel()

	text := strings.NewReplacer("worker: { role: worker, count: 1,",
		"worker: { ha: { hosts: [pve1, pve2], apart: true }, role: worker, count: 1,",
		"control: { role: controlplane, count: 1,", "control: { ha: { }, role: controlplane, count: 1,").
		Replace(external(pair{"iso", "nocloud", "", "static"}))
	r := rehearse(t, stackFile(t, text))
	w := r.Lab.World()
	up(t, r.Stack)

	vm := func(name string) world.VMState {
		v, _ := w.Snapshot().VM(name)

		return v
	}

	rules := func() map[string]string {
		found := map[string]string{}
		for _, rule := range w.HARules() {
			found[rule.Name] = strings.Join(append(rule.Resources, rule.Nodes...), " ")
		}

		return found
	}

	one := "vm:501"
	require.Equal(t, 501, vm("pair-worker-1").ID)
	assert.Equal(t, map[string]string{"pair-worker": one + " pve1 pve2"}, rules(), "one VM is apart from none")
	requireSettled(t, r.Stack)

	// Another one's rule stays.
	operator := world.Caller{ID: r.Lab.Credentials().TokenID}
	_, err := w.Create(operator, "pve1", world.CreateRequest{VMID: 7001, Conf: map[string]string{"name": "other"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return w.CreateHAResource(world.HAResource{SID: "vm:7001", State: "stopped"}) == nil
	}, wait, time.Millisecond)
	require.NoError(t, w.CreateHARule(world.HARule{
		Name: "others", Kind: "node-affinity", Resources: []string{"vm:7001"}, Nodes: []string{"pve1"},
	}))

	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	assert.Equal(t, map[string]string{
		"pair-worker": "vm:501 vm:502 pve1 pve2", "pair-worker-apart": "vm:501 vm:502", "others": "vm:7001 pve1",
	}, rules())

	set(t, r.Stack, "pools.worker.ha.apart", "false")
	set(t, r.Stack, "pools.worker.ha.hosts[0]", "pve1:2")
	up(t, r.Stack)
	assert.Equal(t, map[string]string{"pair-worker": "vm:501 vm:502 pve1:2 pve2", "others": "vm:7001 pve1"}, rules())
	requireSettled(t, r.Stack)

	set(t, r.Stack, "pools.worker.count", "1")
	up(t, r.Stack)
	assert.Equal(t, map[string]string{"pair-worker": "vm:501 pve1:2 pve2", "others": "vm:7001 pve1"}, rules())

	// Hosts change while a VM leaves.
	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	set(t, r.Stack, "pools.worker.count", "1")
	set(t, r.Stack, "pools.worker.ha.hosts[0]", "pve1")
	up(t, r.Stack)
	assert.Equal(t, map[string]string{"pair-worker": "vm:501 pve1 pve2", "others": "vm:7001 pve1"}, rules())
	requireSettled(t, r.Stack)

	// What an update has failed to set, or a person has removed, the next one sets.
	w.DeleteHARule("pair-worker")
	up(t, r.Stack)
	assert.Equal(t, map[string]string{"pair-worker": "vm:501 pve1 pve2", "others": "vm:7001 pve1"}, rules())
	requireSettled(t, r.Stack)

	// Without hosts, there is no rule.
	unset(t, r.Stack, "pools.worker.ha.hosts")
	up(t, r.Stack)
	assert.Equal(t, map[string]string{"others": "vm:7001 pve1"}, rules())
	requireSettled(t, r.Stack)

	// A VM is in one rule only that says where it runs.
	require.NoError(t, w.UpdateHARule("others", world.HARuleUpdate{Resources: []string{"vm:501", "vm:7001"}}))
	set(t, r.Stack, "pools.worker.ha.hosts[0]", "pve2")
	up(t, r.Stack)
	assert.Equal(t, map[string]string{"pair-worker": "vm:501 pve2", "others": "vm:7001 pve1"}, rules())

	requireSettled(t, r.Stack)

	// The ISO file keeps the VM on its host. A new one is made where high availability keeps it.
	assert.Equal(t, "pve1", vm("pair-worker-1").Host)
	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	assert.Equal(t, "pve2", vm("pair-worker-2").Host)
	requireSettled(t, r.Stack)
}

// TestHAGroupAfterUpgrade: a stack with a group of high availability goes on when Proxmox VE 8 becomes 9 and the group
// becomes a rule: nothing changes, and a new node joins the rule.
func TestHAGroupAfterUpgrade(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(external(pair{"iso", "nocloud", "", "static"}),
		"worker: { role: worker, count: 1,", "worker: { haGroup: racks, role: worker, count: 1,", 1)),
		onProxmox(world.Version8))
	w := r.Lab.World()
	up(t, r.Stack)
	requireSettled(t, r.Stack)

	managed, err := w.HAResource("vm:501")
	require.NoError(t, err)
	require.Equal(t, "racks", managed.Group)

	w.Upgrade()

	resources := func() map[string][]string {
		found := map[string][]string{}
		for _, rule := range w.HARules() {
			found[rule.Name] = rule.Resources
		}

		return found
	}

	assert.Equal(t, map[string][]string{"ha-group-racks": {"vm:501"}}, resources())

	managed, err = w.HAResource("vm:501")
	require.NoError(t, err)
	assert.Empty(t, managed.Group)

	before := w.Snapshot()

	requireSettled(t, r.Stack)

	_, err = r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	requireSettled(t, r.Stack)
	assert.Equal(t, before, w.Snapshot())

	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	assert.Equal(t, map[string][]string{"ha-group-racks": {"vm:501", "vm:502"}}, resources())
	requireSettled(t, r.Stack)
}
