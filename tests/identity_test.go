package tests

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// machinesOnly is a cluster that is configured elsewhere, with two workers.
const machinesOnly = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: home, bootstrap: external, versions: { talos: v1.12.4 } }
  talos-proxmox:image: { source: factory, platform: nocloud, factory: { format: iso } }
  talos-proxmox:network: { addressing: static, cidr: 192.168.10.0/24, gateway: 192.168.10.1 }
  talos-proxmox:firewall: { enabled: true }
  talos-proxmox:pools:
    control: { role: controlplane, count: 1, addresses: 192.168.10.11-19 }
    worker: { role: worker, count: 2, addresses: 192.168.10.21-49 }
`

// foreign puts a VM that is not the stack's in the place of one that is: what was there is gone.
func foreign(t *testing.T, r *rehearsal.Rehearsal, vmid int, conf map[string]string) {
	t.Helper()
	remove(t, r, vmid)
	madeForeign(t, r, vmid, conf)
}

func madeForeign(t *testing.T, r *rehearsal.Rehearsal, vmid int, conf map[string]string) {
	t.Helper()

	w := r.Lab.World()

	_, err := w.Create(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", world.CreateRequest{VMID: vmid, Conf: conf})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		config, err := w.Config("pve", vmid, true)

		return err == nil && config["lock"] == nil
	}, wait, 50*time.Millisecond)
}

// untouched holds that nothing but its owner has changed a VM.
func untouched(t *testing.T, r *rehearsal.Rehearsal, vmid int) {
	t.Helper()

	config, err := r.Lab.World().Config("pve", vmid, true)
	require.NoError(t, err)

	mark := len(r.Lab.Journal().Entries())

	t.Cleanup(func() {
		now, err := r.Lab.World().Config("pve", vmid, true)
		require.NoError(t, err)
		assert.Equal(t, config, now)

		// Neither the VM nor what belongs to it, its firewall and its high availability.
		writes := regexp.MustCompile(`^(POST|PUT|DELETE) .*(/qemu/|vm:)` + regexp.QuoteMeta(strconv.Itoa(vmid)) + `\b`)
		for _, e := range r.Lab.Journal().Entries()[mark:] {
			assert.False(t, e.Face == journal.Proxmox && writes.MatchString(e.Call), "%v", e)
		}
	})
}

// TestForeignVM: the VMID of a node went to another VM. Whatever is asked for, that VM is not touched, and the message
// names both.
func TestForeignVM(t *testing.T) {
	r := rehearse(t, stackFile(t, machinesOnly))
	up(t, r.Stack)
	requireNoChange(t, r.Stack)

	ours, _ := vmConfig(t, r, "home-worker-2")["smbios1"].(string)
	ours = regexp.MustCompile(`uuid=([^,]+)`).FindStringSubmatch(ours)[1]

	foreign(t, r, 502, map[string]string{"name": "payroll-db", "cores": "2", "memory": "1024"})

	const now = `VMID 502 is "payroll-db" on host pve (UUID `

	t.Run("the pool gets smaller", func(t *testing.T) {
		untouched(t, r, 502)
		set(t, r.Stack, "pools.worker.count", "1")

		said := failPreview(t, r.Stack)
		assert.Contains(t, said, now)
		assert.Contains(t, said, "), and the state has home-worker-2 there (UUID "+ours+
			"). It is not touched. Give that VM another VMID")
		assert.Contains(t, said, "pulumi state delete --target-dependents '"+urnOf(t, r, "home-worker-2-vm")+"'")

		// Its firewall goes first.
		said = failUp(t, r.Stack)
		assert.Contains(t, said, `before hook "home-vm-companions" failed: `+now)
		assert.Contains(t, said, "It is not touched.")
	})

	t.Run("refreshed", func(t *testing.T) {
		untouched(t, r, 502)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		assert.Contains(t, failPreview(t, r.Stack),
			"without the tags home and talos of this cluster: a refresh has taken it into the state")
		assert.Contains(t, failUp(t, r.Stack), "without the tags home and talos of this cluster")

		// In the plan again.
		set(t, r.Stack, "pools.worker.count", "2")

		for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
			assert.Contains(t, said, `502 is taken by "payroll-db" on host pve`)
		}
	})

	t.Run("destroyed", func(t *testing.T) {
		untouched(t, r, 502)
		set(t, r.Stack, "pools.worker.count", "1")

		out := newOutput(t)
		_, err := r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
		require.Error(t, err)
		assert.Contains(t, out.String(), "has delete hooks registered, but the program is not running")

		_, err = r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
			optdestroy.ErrorProgressStreams(out))
		require.Error(t, err)
		assert.Contains(t, out.String(), `VMID 502 is "payroll-db" on host pve`)
	})

	t.Run("torn down", func(t *testing.T) {
		untouched(t, r, 502)
		set(t, r.Stack, "pools.worker.count", "2")
		set(t, r.Stack, "lifecycle.teardown", "true")

		for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
			assert.Contains(t, said, `502 is taken by "payroll-db" on host pve`)
		}

		unset(t, r.Stack, "lifecycle.teardown")
		set(t, r.Stack, "pools.worker.count", "1")
	})

	t.Run("forgotten", func(t *testing.T) {
		untouched(t, r, 502)

		cli(t, r, "state", "delete", "--target-dependents", "--yes", urnOf(t, r, "home-worker-2-vm"))
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
		assert.Contains(t, vmids(r), "home-worker-1")
	})

	t.Run("in two steps", func(t *testing.T) {
		untouched(t, r, 502)

		set(t, r.Stack, "lifecycle.teardown", "true")
		up(t, r.Stack)

		// Each VM is looked at where the program runs, and is told so.
		foreign(t, r, 501, map[string]string{"name": "home-worker-1", "tags": "home;talos;worker"})
		t.Setenv(config.DestroyVariable, "1")

		out := newOutput(t)
		_, err := r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
			optdestroy.ErrorProgressStreams(out))
		require.Error(t, err)
		assert.Contains(t, out.String(), `VMID 501 is "home-worker-1" on host pve (UUID `)
		assert.Contains(t, vmids(r), "home-control-1")
	})

	remove(t, r, 501)
	cli(t, r, "state", "delete", "--target-dependents", "--yes", urnOf(t, r, "home-worker-1-vm"))

	t.Setenv(config.DestroyVariable, "1")

	_, err := r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"payroll-db": 502}, vmids(r))
}

// TestForeignTwin: the other VM has the node's name and its tags; only its UUID is not ours. It is in the plan and in
// the state.
func TestForeignTwin(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, machinesOnly))
	up(t, r.Stack)
	requireNoChange(t, r.Stack)

	foreign(t, r, 502, map[string]string{
		"name": "home-worker-2", "tags": "home;talos;worker", "cores": "2",
		"memory": "1024",
	})

	for _, change := range []string{"", "pools.worker.memoryMiB", "placement.rebalance", "lifecycle.teardown"} {
		t.Run("with "+change, func(t *testing.T) {
			untouched(t, r, 502)

			switch change {
			case "":
			case "pools.worker.memoryMiB":
				set(t, r.Stack, change, "5120")
			default:
				set(t, r.Stack, change, "true")
			}

			for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
				assert.Contains(t, said, `VMID 502 is "home-worker-2" on host pve (UUID `)
				assert.Contains(t, said, ", and the state has home-worker-2 there (UUID ")
				assert.Contains(t, said, "It is not touched.")
			}

			if change != "" {
				unset(t, r.Stack, change)
			}
		})
	}
}

// TestTakenOver: the VMID of a new node goes to another VM between the last look and the request. Nothing is done to
// that VM, then or later, and once it has gone the same again makes the node.
func TestTakenOver(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, machinesOnly))
	set(t, r.Stack, "pools.worker.count", "1")
	up(t, r.Stack)

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`^POST /nodes/[^/]+/qemu$`), Kind: journal.Interfere,
		Before: func(journal.Entry) {
			_, err := r.Lab.World().Create(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", world.CreateRequest{
				VMID: 502, Conf: map[string]string{"name": "payroll-db", "memory": "1024"},
			})
			assert.NoError(t, err)
		},
	})

	set(t, r.Stack, "pools.worker.count", "2")
	assert.Contains(t, failUp(t, r.Stack), "unable to create VM 502 - VM 502 already exists on node 'pve'")
	r.Lab.Journal().Clear()

	t.Run("left alone", func(t *testing.T) {
		untouched(t, r, 502)
		assert.Empty(t, calls(r, "/qemu/502/firewall"), "what comes after a VM does not come after another")

		assert.Contains(t, failUp(t, r.Stack), `502 is taken by "payroll-db" on host pve`)

		set(t, r.Stack, "pools.worker.count", "1")
		up(t, r.Stack)
	})

	remove(t, r, 502)
	set(t, r.Stack, "pools.worker.count", "2")
	up(t, r.Stack)
	requireNoChange(t, r.Stack)
}

// configuredMachines is machinesOnly, and the program configures its nodes.
var configuredMachines = strings.Replace(machinesOnly, "bootstrap: external, versions: { talos: v1.12.4 }",
	"versions: { talos: v1.12.4, kubernetes: v1.34.2 }", 1) +
	"  talos-proxmox:lifecycle: { settleTimeout: 1s }\n"

// failUpRefresh is failUp with a refresh.
func failUpRefresh(t *testing.T, s auto.Stack) string {
	t.Helper()

	out := newOutput(t)
	_, err := s.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
	require.Error(t, err)

	return out.String()
}

// teardown destroys a cluster as 'ops run destroy' does, and returns what was printed.
func teardown(t *testing.T, r *rehearsal.Rehearsal) (string, error) {
	t.Helper()

	set(t, r.Stack, "lifecycle.teardown", "true")

	// The variable that says so would be one of all tests.
	r.Stack.Workspace().SetProgram(func(ctx *pulumi.Context) error {
		config, err := config.Load(ctx, r.Stack.Workspace().WorkDir())
		if err != nil {
			return err
		}

		config.Destroying = true
		_, err = stacks.Deploy(ctx, config)

		return err
	})

	out := newOutput(t)
	_, err := r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
		optdestroy.ErrorProgressStreams(out))

	return out.String(), err
}

// TestForeignTwinRefreshed: a refresh takes the UUID of the other VM into the state. The node that was configured on ours
// would show another, and it is silent.
func TestForeignTwinRefreshed(t *testing.T) {
	t.Parallel()

	const unknown = "could not determine whether home-worker-2 was set up on VM 502 (host pve)"

	r := rehearse(t, stackFile(t, configuredMachines))
	up(t, r.Stack)
	requireNoChange(t, r.Stack)

	twin := map[string]string{"name": "home-worker-2", "tags": "home;talos;worker", "cores": "2", "memory": "1024"}
	foreign(t, r, 502, twin)

	t.Run("left alone", func(t *testing.T) {
		untouched(t, r, 502)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		said := failPreview(t, r.Stack)
		assert.Contains(t, said, "home-worker-2 was set up on another VM than the state has now")
		assert.Contains(t, said, unknown)

		assert.Contains(t, failUp(t, r.Stack), unknown)
		assert.Contains(t, failUpRefresh(t, r.Stack), unknown)

		set(t, r.Stack, "pools.worker.memoryMiB", "5120")
		assert.Contains(t, failUp(t, r.Stack), unknown)
		unset(t, r.Stack, "pools.worker.memoryMiB")

		// Without the teardown, no node goes.
		out := newOutput(t)
		_, err = r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
			optdestroy.ErrorProgressStreams(out))
		require.Error(t, err)
	})

	// It has gone again: the node gets a VM of its own.
	remove(t, r, 502)
	upRefresh(t, r.Stack)
	requireNoChange(t, r.Stack)

	foreign(t, r, 502, twin)

	t.Run("left when the cluster is destroyed", func(t *testing.T) {
		untouched(t, r, 502)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		// The first forgets what was configured.
		for range 2 {
			said, err := teardown(t, r)
			require.Error(t, err)
			assert.Contains(t, said, unknown)
		}
	})
}

// TestForeignTwinRefreshedK3s: what has joined tells our VM from the other.
func TestForeignTwinRefreshedK3s(t *testing.T) {
	t.Parallel()

	const refused = "edge-agent-1 was set up on another VM than the state has now"

	// The provider reads the UUID of a VM that is no copy of a template.
	r := rehearse(t, example(t, "k3s", "    template: { control: ubuntu-24.04, worker: ubuntu-24.04 }\n",
		"    source: cloudImage\n"+
			"    cloudImage: { url: "+
			"https://cloud-images.ubuntu.com/releases/noble/release-20251113/ubuntu-24.04-server-cloudimg-amd64.img, "+
			"checksum: sha256:"+strings.Repeat("0", 64)+" }\n"))
	up(t, r.Stack)

	tags, _ := vmConfig(t, r, "edge-agent-1")["tags"].(string)
	twin := map[string]string{"name": "edge-agent-1", "tags": tags, "cores": "2", "memory": "1024"}

	foreign(t, r, 501, twin)

	t.Run("replaced, as the message says", func(t *testing.T) {
		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		assert.Contains(t, failUp(t, r.Stack), refused)
		set(t, r.Stack, "lifecycle.replace[0]", "edge-agent-1")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)
	})

	foreign(t, r, 501, twin)

	t.Run("left alone", func(t *testing.T) {
		untouched(t, r, 501)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		// The name in the list says nothing of this VM.
		assert.Contains(t, failUp(t, r.Stack), refused)
		unset(t, r.Stack, "lifecycle.replace")

		assert.Contains(t, failPreview(t, r.Stack), refused)
		assert.Contains(t, failUp(t, r.Stack), refused)
		assert.Contains(t, failUpRefresh(t, r.Stack), refused)

		set(t, r.Stack, "pools.agent.memoryMiB", "3072")
		assert.Contains(t, failPreview(t, r.Stack), refused)
		assert.Contains(t, failUp(t, r.Stack), refused)

		// Its node leaves, and is said to be dead.
		set(t, r.Stack, "pools.agent.count", "0")
		set(t, r.Stack, "lifecycle.forceRemove[0]", "edge-agent-1")
		assert.Contains(t, failUp(t, r.Stack), refused)
		unset(t, r.Stack, "lifecycle.forceRemove")
		set(t, r.Stack, "pools.agent.count", "1")

		for range 2 {
			said, err := teardown(t, r)
			require.Error(t, err)
			assert.Contains(t, said, refused)
		}
	})
}

// TestIdentityWithoutNotes: a person has changed the notes of the VMs. Each is changed and deleted where its node shows
// that it is the one that it was set up on. A VM that is off is changed when its notes state its UUID.
func TestIdentityWithoutNotes(t *testing.T) {
	t.Parallel()

	annotate := func(t *testing.T, r *rehearsal.Rehearsal, name, notes string) {
		t.Helper()

		v, there := r.Lab.World().Snapshot().VM(name)
		require.True(t, there, name)
		require.NoError(t, r.Lab.World().Update(operator(r), v.Host, v.ID,
			world.UpdateRequest{Conf: map[string]string{"description": notes}}))
	}

	t.Run("Talos", func(t *testing.T) {
		t.Parallel()

		r := rehearse(t, stackFile(t, strings.Replace(configuredMachines, "role: controlplane,",
			"role: controlplane, haGroup: racks,", 1)))
		up(t, r.Stack)

		for _, name := range []string{"home-control-1", "home-worker-1", "home-worker-2"} {
			annotate(t, r, name, "of the platform team")
		}

		set(t, r.Stack, "defaults.cores", "3")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		const unknown = "could not determine whether home-worker-2 was set up on VM 502 (host pve): the notes of " +
			"the VM do not state"

		// What belongs to a VM is not made for another either.
		r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Talos, Subject: "home-worker-2", Call: regexp.MustCompile(`cosi\.resource\.State/Get$`),
			Kind: journal.Refuse, Times: math.MaxInt,
		})
		set(t, r.Stack, "pools.worker.haGroup", "racks")
		assert.Contains(t, failUp(t, r.Stack), `before hook "home-vm-companions" failed: `+unknown)
		r.Lab.Journal().Clear()

		stopVM(t, r, "home-worker-2")
		set(t, r.Stack, "defaults.cores", "4")

		said := failUp(t, r.Stack)
		assert.Contains(t, said, unknown)

		line := regexp.MustCompile(`VM UUID [0-9a-f-]{36}`).FindString(said)
		require.NotEmpty(t, line)

		annotate(t, r, "home-worker-2", "of the platform team\n\n"+line)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)

		annotate(t, r, "home-worker-2", "of the platform team")
		_, err := teardown(t, r)
		require.NoError(t, err)
		assert.Empty(t, vmids(r))
	})

	t.Run("K3s", func(t *testing.T) {
		t.Parallel()

		// The state has the machines that have joined.
		r := rehearse(t, example(t, "k3s"))
		up(t, r.Stack)

		for _, name := range []string{"edge-server-1", "edge-agent-1"} {
			annotate(t, r, name, "")
		}

		set(t, r.Stack, "defaults.cores", "3")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)

		_, err := teardown(t, r)
		require.NoError(t, err)
		assert.Empty(t, vmids(r))
	})
}

// TestTeardownTakenBack: after an update with a teardown, the state has no hooks that drain a node and compare its VM. No
// node goes before an update has given them back.
func TestTeardownTakenBack(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	up(t, r.Stack)

	before := vmids(r)

	set(t, r.Stack, "lifecycle.teardown", "true")
	up(t, r.Stack)

	set(t, r.Stack, "lifecycle.teardown", "false")
	set(t, r.Stack, "pools.worker.count", "0")
	assert.Contains(t, failUp(t, r.Stack), "pools: the removal of a node cannot take effect in the first update after one "+
		"with lifecycle.teardown")

	set(t, r.Stack, "pools.worker.count", "1")
	set(t, r.Stack, "lifecycle.replace[0]", "k3s-dev-worker-1")

	const refused = "lifecycle.replace: cannot take effect in the first update after one with lifecycle.teardown"

	assert.Contains(t, failPreview(t, r.Stack), refused)
	assert.Contains(t, failUp(t, r.Stack), refused)
	assert.Equal(t, before, vmids(r))

	unset(t, r.Stack, "lifecycle.replace")
	up(t, r.Stack)

	set(t, r.Stack, "lifecycle.replace[0]", "k3s-dev-worker-1")

	kept := uuidIn(t, r, "k3s-dev-worker-1")

	up(t, r.Stack)
	assert.NotEqual(t, kept, uuidIn(t, r, "k3s-dev-worker-1"))
}
