package tests

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// previewOf runs a preview that must succeed, and returns what was printed.
func previewOf(t *testing.T, s auto.Stack) string {
	t.Helper()

	out := newOutput(t)
	_, err := s.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
	require.NoError(t, err)

	return out.String()
}

// TestUnheardVMs: a host whose pvestatd hangs says nothing of new VMs, and in the end nothing of any. Names, states and
// templates come from the host itself: nothing is refused, nothing is taken for off that runs.
func TestUnheardVMs(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne))
	w := r.Lab.World()

	// The VMs are made and never broadcast.
	require.NoError(t, w.HangPvestatd("pve", true))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	// The templates are forgotten, too.
	require.NoError(t, w.Forget("pve"))
	requireNoChange(t, r.Stack)
	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	// The last that was heard of a worker is that it is off.
	worker := vmids(r)["home-worker-1"]
	operator := world.Caller{ID: r.Lab.Credentials().TokenID}
	stopVM(t, r, "home-worker-1")
	require.NoError(t, w.HangPvestatd("pve", false))
	require.NoError(t, w.HangPvestatd("pve", true))

	_, err := w.Start(operator, "pve", worker)
	require.NoError(t, err)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	set(t, r.Stack, "pools.worker.cores", "3")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.EqualValues(t, 3, vmConfig(t, r, "home-worker-1")["cores"])

	for _, name := range []string{"home-worker-1", "home-worker-2"} {
		assert.NotEmpty(t, calls(r, "PATCH /api/v1/nodes/"+name), "it is drained before its VM is restarted")
	}

	requireNoChange(t, r.Stack)
}

// stopVM cuts the power of a node's VM.
func stopVM(t *testing.T, r *rehearsal.Rehearsal, name string) {
	t.Helper()

	v, there := r.Lab.World().Snapshot().VM(name)
	require.True(t, there, name)

	_, err := r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, v.Host, v.ID)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		now, err := r.Lab.World().VM(v.Host, v.ID)

		return err == nil && !now.Running
	}, wait, 100*time.Millisecond)
}

// threeHosts has a control plane and workers on each of three hosts.
var threeHosts = strings.NewReplacer(
	"[{ name: pve }]", "[{ name: pve1 }, { name: pve2 }, { name: pve3 }]",
	"    worker: { role: worker, count: 1, addresses: 192.168.10.21-49 }\n",
	"    worker: { role: worker, host: pve1, count: 1, vmids: 501-509, addresses: 192.168.10.21-29 }\n"+
		"    edge: { role: worker, host: pve2, count: 1, vmids: 511-519, addresses: 192.168.10.31-39 }\n",
).Replace(threeAndOne) + "  talos-proxmox:placement: { strategy: spread }\n"

// TestHostDown: a host goes down, now, and long ago. That is said before anything begins; what is on other hosts can be
// changed, what is on this one cannot; nodes on it leave the cluster where the operator says that they are dead, and
// what is left to do is named.
func TestHostDown(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeHosts))
	w := r.Lab.World()
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	elsewhere := func(tag, said string) {
		t.Helper()

		set(t, r.Stack, "pools.worker.tags[0]", tag)

		out := newOutput(t)
		_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
		require.NoError(t, err)
		assert.Contains(t, out.String(), said)
		assert.Contains(t, vmConfig(t, r, "home-worker-1")["tags"], tag)
	}

	t.Run("its daemons are stopped", func(t *testing.T) {
		// A VM of others has the VMID of the next worker.
		next := vmids(r)["home-worker-1"] + 1
		task, err := w.Create(administrator, "pve2", world.CreateRequest{VMID: next, Conf: map[string]string{"name": "other"}})
		require.NoError(t, err)
		ended(t, r, "pve2", task)
		require.NoError(t, w.StopDaemons("pve2", true))

		const said = "does not answer, though the cluster sees it: the state of the VMs of home-control-2, home-edge-1 is " +
			"unknown, and none of them can be changed or " +
			"deleted (given: pve2)"

		assert.Contains(t, previewOf(t, r.Stack), said)
		elsewhere("racked", said)

		before := w.Snapshot()

		guard, _ := guarded(t, r)
		assert.EqualError(t, guard.Run(t.Context(), []string{"refresh", "--yes"}, func(context.Context, ...string) error {
			return errors.New("it was run")
		}), "pulumi refresh was not run, because a refresh would forget resources that do not answer: host pve2 does not "+
			"answer, and has home-control-2, home-edge-1: start it; 'up --refresh=false' changes other nodes meanwhile")

		set(t, r.Stack, "pools.edge.cores", "3")

		const refused = "the VM of home-edge-1 (VMID %d) is to be changed, and its host pve2 does not answer: " +
			"start the host, or revert the change"
		want := strings.Replace(refused, "%d", fmt.Sprint(vmids(r)["home-edge-1"]), 1)
		assert.Contains(t, failPreview(t, r.Stack), want)
		assert.Contains(t, failUp(t, r.Stack), want)
		unset(t, r.Stack, "pools.edge.cores")

		// It runs: it is not taken for dead.
		set(t, r.Stack, "pools.edge.count", "0")

		const stays = "the VM of home-edge-1 cannot be deleted: it is VM %d on host pve2, which does not answer; start the host"
		want = strings.Replace(stays, "%d", fmt.Sprint(vmids(r)["home-edge-1"]), 1)
		assert.Contains(t, failPreview(t, r.Stack), want)
		assert.Contains(t, failUp(t, r.Stack), want)
		assert.Equal(t, before, w.Snapshot())
		assert.Contains(t, kubernetesNodes(t, api), "home-edge-1")
		set(t, r.Stack, "pools.edge.count", "1")

		set(t, r.Stack, "pools.worker.count", "2")
		want = fmt.Sprintf("pools.worker.vmids: %d is a VM on host pve2, which does not answer, without the tags home and "+
			"talos: its owner is unknown (given: home-worker-2); start the host, or choose another range", next)
		assert.Contains(t, failPreview(t, r.Stack), want)
		assert.Contains(t, failUp(t, r.Stack), want)

		require.NoError(t, w.StopDaemons("pve2", false))
		assert.Contains(t, failUp(t, r.Stack), fmt.Sprintf(`%d is taken by "other" on host pve2`, next), "it has an owner")

		task, err = w.Destroy(administrator, "pve2", next, world.DestroyRequest{})
		require.NoError(t, err)
		ended(t, r, "pve2", task)
		up(t, r.Stack)
		assert.Equal(t, next, vmids(r)["home-worker-2"])
		set(t, r.Stack, "pools.worker.count", "1")
		// The components have learned of the changes that were taken back.
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
	})

	edge := vmids(r)["home-edge-1"]

	t.Run("it lost its power long ago", func(t *testing.T) {
		require.NoError(t, w.CutPower("pve2"))
		require.NoError(t, w.Forget("pve2"))

		const said = "is offline: the state of the VMs of home-control-2, home-edge-1 is unknown, and none of them can be " +
			"changed or deleted (given: pve2)"

		assert.Contains(t, previewOf(t, r.Stack), said)
		elsewhere("moved", said)
	})

	t.Run("a dead node leaves", func(t *testing.T) {
		set(t, r.Stack, "pools.edge.count", "0")
		set(t, r.Stack, "lifecycle.forceRemove[0]", "home-edge-1")
		assert.Contains(t, previewOf(t, r.Stack),
			"VM "+fmt.Sprint(edge)+" leaves the cluster, but cannot be deleted until its host answers (given: pve2)")

		left := "home-edge-1 has left the cluster, and its VM is still there: it is VM " + fmt.Sprint(edge) +
			" on host pve2, which does not answer. When the host is back, run " +
			"'pulumi up' again. If it never comes back, run 'rm /etc/pve/nodes/pve2/qemu-server/" + fmt.Sprint(edge) +
			".conf' on another host, then 'pulumi up --refresh'"

		// Once more is no other.
		for range 2 {
			assert.Contains(t, failUp(t, r.Stack), left)
			assert.NotContains(t, kubernetesNodes(t, api), "home-edge-1")
		}

		assert.Contains(t, vmids(r), "home-edge-1")
	})

	t.Run("it is back", func(t *testing.T) {
		require.NoError(t, w.SetOffline("pve2", false))

		for _, name := range []string{"home-control-2", "home-edge-1"} {
			_, err := w.Start(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve2", vmids(r)[name])
			require.NoError(t, err)
		}

		requireVoters(t, r, 3)
		up(t, r.Stack)
		assert.NotContains(t, vmids(r), "home-edge-1")
		assert.NotContains(t, kubernetesNodes(t, api), "home-edge-1")
		unset(t, r.Stack, "lifecycle.forceRemove")
		requireNoChange(t, r.Stack)
	})

	t.Run("a control plane is replaced that never comes back", func(t *testing.T) {
		require.NoError(t, w.CutPower("pve2"))
		require.NoError(t, w.Forget("pve2"))

		vmid := vmids(r)["home-control-2"]

		set(t, r.Stack, "lifecycle.replace[0]", "home-control-2")
		assert.Contains(t, failUp(t, r.Stack),
			"the VM of home-control-2 cannot be deleted: it is VM "+fmt.Sprint(vmid)+
				" on host pve2, which does not answer; start the host")

		set(t, r.Stack, "lifecycle.forceRemove[0]", "home-control-2")
		assert.Contains(t, failUp(t, r.Stack),
			"home-control-2 has left the cluster, and its VM is still there: it is VM "+fmt.Sprint(vmid)+" on host pve2")

		// As the message says; and the host goes out of the configuration.
		require.NoError(t, w.RemoveConfig("pve2", vmid))
		set(t, r.Stack, "proxmox.hosts[1].name", "pve3")
		unset(t, r.Stack, "proxmox.hosts[2]")
		unset(t, r.Stack, "pools.edge")

		_, err := r.Stack.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
		unset(t, r.Stack, "lifecycle.forceRemove")
		unset(t, r.Stack, "lifecycle.replace")
		up(t, r.Stack)
		requireVoters(t, r, 3)
		assert.Contains(t, kubernetesNodes(t, api), "home-control-2")
		requireNoChange(t, r.Stack)
	})
}

// TestNameInUse: another stack has a cluster of the same name on this Proxmox VE. That is said, and nothing is made.
func TestNameInUse(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne))
	w, operator := r.Lab.World(), world.Caller{ID: r.Lab.Credentials().TokenID}

	_, err := w.Create(operator, "pve", world.CreateRequest{
		VMID: 1000,
		Conf: map[string]string{"name": "home-control-1", "tags": "controlplane;home;talos"},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, there := w.Snapshot().VM("home-control-1")

		return there
	}, wait, 100*time.Millisecond)

	before := w.Snapshot()

	const refused = "cluster.name: is in use on this Proxmox VE by VM 1000 (home-control-1 on host pve), which is " +
		"not in this stack's configuration, while none of the nodes of this stack exists (given: home); choose " +
		"another name; or, if that VM belongs to this stack, put its VMIDs back"

	for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
		assert.Contains(t, said, refused)
		assert.NotContains(t, said, "etcd needs")
	}

	assert.Equal(t, before, w.Snapshot())
	set(t, r.Stack, "cluster.name", "away")
	previewOf(t, r.Stack)
}

// TestClocks: what is only good to know of a host's clock stops nothing. A node that cannot set its clock does not
// answer, and the message tells where it stands; one whose clock is wrong refuses the program's certificate, and the
// message names the clock. Once clocks are right, the same update goes on.
func TestClocks(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.NewReplacer("count: 3", "count: 1", "drainTimeout: 3s",
		"drainTimeout: 3s, nodeTimeout: 5s").Replace(threeAndOne)))
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`^GET /nodes/pve/time$`),
		Kind: journal.Refuse, Message: "no clock",
	})

	assert.Regexp(t, `warning: proxmox.hosts: its clock was not checked: .*no clock \(given: pve\)`,
		previewOf(t, r.Stack))

	require.NoError(t, r.Lab.World().SetClock("pve", 5*time.Hour))
	r.Talos.Break("home-worker-1", talos.ClockUnset)

	const ahead = "warning: proxmox.hosts: has a clock that is 5h0m0s ahead of this machine's: nodes may reject " +
		"certificates that are issued here"

	said := failUp(t, r.Stack)
	assert.Contains(t, said, ahead)
	assert.Regexp(t, `gave up after 5s, waiting for home-worker-1 \S* ?to answer at `, said)

	made := uuids(t, r)

	require.NoError(t, r.Lab.World().SetClock("pve", 0))
	r.Talos.Mend("home-worker-1", talos.ClockUnset)

	// A time server is wrong: for the control plane, and for a new worker, which gets no certificate.
	const wrong = "it rejects the certificate of this program as expired, or not yet valid: " +
		"its clock or that of this machine is wrong; correct it ('date -u' shows it), then run 'pulumi up' again"

	r.Talos.Break("home-control-1", talos.ClockBehind)
	set(t, r.Stack, "pools.control.patches[0]", "machine: { sysctls: { a: b } }")
	assert.Contains(t, failUp(t, r.Stack), wrong)
	r.Talos.Mend("home-control-1", talos.ClockBehind)
	up(t, r.Stack)

	r.Talos.Break("home-worker-2", talos.ClockBehind)
	set(t, r.Stack, "pools.worker.count", "2")
	assert.Regexp(t, `gave up after 5s, waiting for home-worker-2 \S* ?to answer at `, failUp(t, r.Stack))
	r.Talos.Mend("home-worker-2", talos.ClockBehind)

	set(t, r.Stack, "lifecycle.nodeTimeout", "1m")

	out := newOutput(t)
	_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
	require.NoError(t, err)
	assert.NotContains(t, out.String(), "clock")
	require.NoError(t, r.WaitReady(t.Context(), wait))

	for name, uuid := range made {
		assert.Equal(t, uuid, vmConfig(t, r, name)["smbios1"], name)
	}

	requireNoChange(t, r.Stack)
}

// TestPrivilegeOfAChange: a privilege that a change of a node needs is missed before the change begins, and by nothing
// else.
func TestPrivilegeOfAChange(t *testing.T) {
	t.Parallel()

	const secret = "6d1f4c36-3f6b-4d35-9d8a-2c8b8d0f1a77"

	table, role := permissionsPage(t)
	require.NotEmpty(t, table)

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "count: 3", "count: 1", 1)))
	w := r.Lab.World()
	w.AddToken(limitedToken, secret)
	w.Grant(limitedToken, "/", role...)
	login(t, r.Stack, limitedToken, secret)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	without := func(name string) {
		w.Grant(limitedToken, "/", slices.DeleteFunc(slices.Clone(role), func(p string) bool { return p == name })...)
	}

	without("VM.Config.Memory")
	requireNoChange(t, r.Stack)

	before := w.Snapshot()
	set(t, r.Stack, "pools.worker.memoryMiB", "6144")

	const lacks = "the credentials lack VM.Config.Memory on /vms/501, to configure VMs, which the change of " +
		"home-worker-1 needs (memory, started)"

	for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
		assert.Contains(t, said, lacks)
		assert.NotContains(t, said, "403")
	}

	assert.Equal(t, before, w.Snapshot(), "nothing is drained, nothing is written")
	unset(t, r.Stack, "pools.worker.memoryMiB")

	// So are those of what the program does itself, and of a VM that is to be made again.
	for _, c := range []struct{ key, value, without, needs string }{
		{"pools.worker.cpuUnits", "512", "VM.Config.CPU", "which the change of home-worker-1 needs (cpu, "},
		{"pools.worker.diskGiB", "60", "Datastore.AllocateSpace", "which the change of home-worker-1 needs (disks, "},
		{
			"lifecycle.replace[0]", "home-worker-1", "Datastore.AllocateSpace",
			"and lifecycle.replace names home-worker-1",
		},
	} {
		without(c.without)

		before = w.Snapshot()
		set(t, r.Stack, c.key, c.value)

		for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
			assert.Contains(t, said, "the credentials lack "+c.without)
			assert.Contains(t, said, c.needs)
		}

		assert.Equal(t, before, w.Snapshot(), c.key)
		unset(t, r.Stack, strings.TrimSuffix(c.key, "[0]"))
	}

	without("VM.Config.Memory")

	// Another change does not need it.
	set(t, r.Stack, "pools.worker.tags[0]", "racked")
	up(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, "home-worker-1")["tags"], "racked")

	// A node that leaves must not leave by half.
	without("VM.Allocate")

	before = w.Snapshot()
	set(t, r.Stack, "pools.worker.count", "0")

	for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
		assert.Contains(t, said, "the credentials lack VM.Allocate on /vms/501, to remove home-worker-1")
	}

	assert.Equal(t, before, w.Snapshot())
	w.Grant(limitedToken, "/", role...)
	up(t, r.Stack)
	assert.NotContains(t, vmids(r), "home-worker-1")
}
