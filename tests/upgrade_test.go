package tests

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/impact"
	"talos-proxmox/stacks/ops/impactcmd"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/rehearsal"
)

// rolling is a cluster with three control planes, that may be upgraded.
const rolling = `config:
  talos-proxmox:proxmox:
    endpoint: https://pve.lan:8006
    tokenId: pulumi@pve!talos
    hosts: [{ name: pve1 }, { name: pve2 }]
  talos-proxmox:cluster:
    name: roll
    ha: true
    versions: { talos: v1.11.6, kubernetes: v1.33.6 }
  talos-proxmox:image:
    source: factory
    platform: metal
    factory: { format: iso, extensions: [qemu-guest-agent] }
  talos-proxmox:network:
    addressing: static
    cidr: 10.40.0.0/16
    gateway: 10.40.0.1
  talos-proxmox:lifecycle:
    keepImages: false
    nodeTimeout: 60s
    readyTimeout: 60s
    drainTimeout: 20s
    upgrade: { maxUnavailable: 2, timeout: 60s }
  talos-proxmox:pools:
    control: { role: controlplane, count: 3, addresses: 10.40.0.11-13 }
    worker: { role: worker, count: 3, addresses: 10.40.0.21-29 }
`

// eventsOf are what was done to each node since a time, but for boots.
func eventsOf(r *rehearsal.Rehearsal, since time.Time) map[string][]talos.EventKind {
	found := map[string][]talos.EventKind{}

	for _, h := range r.Talos.Events(since) {
		if h.Kind != talos.Booted {
			found[h.Node] = append(found[h.Node], h.Kind)
		}
	}

	return found
}

// requireOrderly holds that no more nodes were down at once than may be, and that etcd had its quorum all the time.
func requireOrderly(t *testing.T, r *rehearsal.Rehearsal, since time.Time, workers int) {
	t.Helper()

	outages := r.Talos.Outages(since)
	of := func(role string) []talos.Outage {
		return slices.DeleteFunc(slices.Clone(outages), func(o talos.Outage) bool { return o.Role != role })
	}

	most, at := talos.MostDown(of("controlplane"))
	assert.LessOrEqual(t, most, 1, "control planes at %s: %v", at, outages)

	most, at = talos.MostDown(of("worker"))
	assert.LessOrEqual(t, most, workers, "workers at %s: %v", at, outages)

	if controls, workers := of("controlplane"), of("worker"); len(controls) > 0 && len(workers) > 0 {
		assert.True(t, controls[len(controls)-1].To.Before(workers[0].From), "control planes go first")
	}
}

// requireCanary holds that one worker was back before another went down.
func requireCanary(t *testing.T, r *rehearsal.Rehearsal, since time.Time) {
	t.Helper()

	workers := slices.DeleteFunc(r.Talos.Outages(since), func(o talos.Outage) bool { return o.Role != "worker" })
	require.Greater(t, len(workers), 1)

	for _, o := range workers[1:] {
		assert.True(t, workers[0].To.Before(o.From), "%s before %s was back", o.Node, workers[0].Node)
	}
}

// changedVMs are those whose settings were written.
func changedVMs(r *rehearsal.Rehearsal, since time.Time) []string {
	var found []string

	for _, e := range r.Lab.Journal().Entries() {
		if e.Time.After(since) && regexp.MustCompile(`^PUT /nodes/\w+/qemu/\d+/config$`).MatchString(e.Call) {
			found = append(found, e.Call)
		}
	}

	slices.Sort(found)

	return slices.Compact(found)
}

// impactTable is the table of what an update would do, by node.
func impactTable(t *testing.T, r *rehearsal.Rehearsal) map[string]impact.NodeImpact {
	t.Helper()

	return impactTableIn(t, r, newOutput(t))
}

// impactTableIn keeps what was printed.
func impactTableIn(t *testing.T, r *rehearsal.Rehearsal, printed *engine.Transcript) map[string]impact.NodeImpact {
	t.Helper()

	rows, _, err := impactcmd.Impact(t.Context(), r.Stack, printed)
	require.NoError(t, err)

	found := map[string]impact.NodeImpact{}
	for _, row := range rows {
		found[row.Node] = row
	}

	require.Len(t, found, len(r.Plan.Nodes()))

	return found
}

// effects are what the table says becomes of each node.
func effects(rows map[string]impact.NodeImpact) map[string]impact.Effect {
	found := map[string]impact.Effect{}
	for name, row := range rows {
		found[name] = row.Effect
	}

	return found
}

// happened is what became of each node since a time, in the words of the table.
func happened(r *rehearsal.Rehearsal, since time.Time) map[string]impact.Effect {
	found, done := map[string]impact.Effect{}, eventsOf(r, since)

	for _, n := range r.Plan.Nodes() {
		switch did := done[n.Name]; {
		case slices.Contains(did, talos.Upgraded):
			found[n.Name] = impact.EffectUpgrade
		case slices.Contains(did, talos.Rebooted), slices.Contains(did, talos.WasShutDown):
			found[n.Name] = impact.EffectReboot
		case len(did) > 0:
			found[n.Name] = impact.EffectLive
		default:
			found[n.Name] = impact.EffectNone
		}
	}

	return found
}

// TestUpgrade takes the home cluster from one minor version of Talos to the next, with an extension more: in place, in
// turns, and once, though the CLI is killed and a node falls back. Kubernetes follows, and is killed, too.
func TestUpgrade(t *testing.T) {
	t.Parallel()

	r, command := rehearseKillable(t, example(t, "atlas"))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	before, machines, made := vmids(r), uuids(t, r), time.Now()

	set(t, r.Stack, "cluster.versions.talos", "v1.12.4")
	set(t, r.Stack, "image.factory.extensions[2]", "iscsi-tools")

	table := impactTable(t, r)
	assert.Empty(t, eventsOf(r, made), "a preview changes nothing")

	for name, row := range table {
		assert.Contains(t, row.Why, "Talos v1.11.2 becomes v1.12.4, schematic ", name)
		assert.Equal(t, row.Role == "controlplane", row.Quorum == "2 of 3, 2 needed", name)
		require.Len(t, row.Settings, 1, name)
		assert.Contains(t, row.Settings[0].String(), "machine.install.image: ")
	}

	assert.Equal(t, []int{1, 2, 3, 4, 5}, []int{
		table["talos-cp-01"].Order, table["talos-cp-02"].Order, table["talos-cp-03"].Order, table["talos-worker-01"].Order,
		table["talos-worker-02"].Order,
	})

	killAt(t, r, command, talos.Upgraded)
	requireOrderly(t, r, made, 1)

	// Of those that are left, one is to come back with what it had.
	var broken string

	for _, n := range r.Nodes() {
		if broken == "" && n.Talos == "v1.11.2" {
			broken = n.Name
		}
	}

	require.NotEmpty(t, broken, "the update was not killed half-way")
	r.Talos.Break(broken, talos.UpgradeFallsBack)

	said := failUp(t, r.Stack)
	assert.Contains(t, said, broken+" is not changed: it came back with Talos v1.11.2, schematic ")

	if table[broken].Role == "controlplane" {
		for _, n := range r.Nodes() {
			assert.False(t, n.Role == "worker" && n.Talos != "v1.11.2", "nothing is begun after a failure: %s", n.Name)
		}
	}

	r.Talos.Mend(broken, talos.UpgradeFallsBack)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	assert.Equal(t, before, vmids(r))
	assert.Equal(t, machines, uuids(t, r))
	assert.Equal(t, effects(table), happened(r, made))
	requireOrderly(t, r, made, 1)
	requireVoters(t, r, 3)

	for _, n := range r.Nodes() {
		assert.Equal(t, "v1.12.4", n.Talos)

		times := map[bool]int{false: 1, true: 2}[n.Name == broken]
		assert.Len(t, slices.DeleteFunc(eventsOf(r, made)[n.Name], func(d talos.EventKind) bool { return d != talos.Upgraded }),
			times, n.Name)
	}

	assert.Empty(t, cordoned(t, r))

	t.Run("snapshots", func(t *testing.T) {
		kept, err := etcdbackup.Store{
			Dir:     filepath.Join(r.Stack.Workspace().WorkDir(), "etcd-backups"),
			Cluster: "atlas",
		}.List()
		require.NoError(t, err)
		assert.NotEmpty(t, kept)

		for _, s := range kept {
			require.NoError(t, etcdbackup.Verify(s))
		}
	})

	t.Run("Kubernetes", func(t *testing.T) {
		since := time.Now()

		set(t, r.Stack, "cluster.versions.kubernetes", "v1.33.6")

		table := impactTable(t, r)
		assert.Equal(t, []int{1, 2, 3, 4, 5}, []int{
			table["talos-cp-01"].Order, table["talos-cp-02"].Order, table["talos-cp-03"].Order, table["talos-worker-01"].Order,
			table["talos-worker-02"].Order,
		}, "one node after the other")

		requireKilledAndContinued(t, r, command, talos.Applied, 1)
		assert.Empty(t, r.Talos.Outages(since), "no node goes down for it")
	})

	requireSettled(t, r.Stack)

	for name, row := range impactTable(t, r) {
		assert.Equal(t, impact.EffectNone, row.Effect, name)
	}

	for _, next := range []struct{ talos, kubernetes string }{{"v1.13.9", "v1.34.2"}, {"v1.14.1", "v1.35.4"}} {
		t.Run("Talos "+next.talos, func(t *testing.T) {
			since := time.Now()

			set(t, r.Stack, "cluster.versions.talos", next.talos)
			set(t, r.Stack, "cluster.versions.kubernetes", next.kubernetes)

			table := impactTable(t, r)
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))

			assert.Equal(t, effects(table), happened(r, since))
			assert.Equal(t, machines, uuids(t, r))
			assert.Empty(t, r.Talos.Violations(since))
			requireOrderly(t, r, since, 1)
			requireVoters(t, r, 3)

			for _, n := range r.Nodes() {
				assert.Equal(t, next.talos, n.Talos)
			}

			requireNoChange(t, r.Stack)
		})
	}
}

// TestUpgradeToNewest takes a cluster from Talos 1.11 by way of 1.12 and 1.13 to the newest, each with a version of
// Kubernetes that the one before does not know, on the released etcd and Kubernetes: in turns, with the inventory of
// Talos' manifests, and the last two killed half-way, with a canary that falls back.
func TestUpgradeToNewest(t *testing.T) {
	t.Parallel()

	r, command := rehearseKillable(t, stackFile(t, strings.NewReplacer("v1.33.6", "v1.34.2",
		"maxUnavailable: 2", "maxUnavailable: 2, canary: true").Replace(rolling)), onRealKubernetes)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	machines := uuids(t, r)

	for _, hop := range []struct{ from, to, kubernetes string }{
		{"v1.11.6", "v1.12.4", "v1.35.4"}, {"v1.12.4", "v1.13.9", "v1.36.1"}, {"v1.13.9", "v1.14.1", "v1.37.0"},
	} {
		since := time.Now()

		set(t, r.Stack, "cluster.versions.talos", hop.to)

		table := impactTable(t, r)

		disturbed := hop.from != "v1.11.6" // TestUpgrade disturbs that one
		if disturbed {
			requireUpgradeStopped(t, r, command, hop.from, hop.to)
		}

		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		for _, n := range r.Nodes() {
			assert.Equal(t, hop.to, n.Talos, n.Name)
		}

		// Talos has a service for it since 1.13, which installs while the node goes on.
		assert.Equal(t, hop.from == "v1.13.9", slices.Contains(eventsOf(r, since)["roll-control-1"], talos.Installing))
		assert.Equal(t, effects(table), happened(r, since))
		assert.Equal(t, machines, uuids(t, r))
		assert.Empty(t, r.Talos.Violations(since))
		assert.Empty(t, cordoned(t, r))
		requireOrderly(t, r, since, 2)
		requireCanary(t, r, since)
		requireVoters(t, r, 3)

		since = time.Now()

		set(t, r.Stack, "cluster.versions.kubernetes", hop.kubernetes)

		if disturbed {
			requireKilledAndContinued(t, r, command, talos.Applied, 2)
		} else {
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))
		}

		assert.Empty(t, r.Talos.Outages(since), "no node goes down for it")
		requireNoChange(t, r.Stack)
	}

	outputs, err := r.Stack.Outputs(t.Context())
	require.NoError(t, err)

	api := kubernetesClient(t, outputs)

	proxy, err := api.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "registry.k8s.io/kube-proxy:v1.37.0", proxy.Spec.Template.Spec.Containers[0].Image)

	inventory, err := api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(),
		proxy.Annotations["config.k8s.io/owning-inventory"], metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, inventory.Data, "kube-system_kube-proxy_apps_DaemonSet")
}

// requireUpgradeStopped kills an upgrade of Talos half-way, and has its canary fall back when it goes on.
func requireUpgradeStopped(t *testing.T, r *rehearsal.Rehearsal, command *engine.Command, from, to string) {
	t.Helper()

	begun := time.Now()

	killAt(t, r, command, talos.Upgraded)
	requireVoters(t, r, 3)

	// Whichever worker comes first is the canary.
	for _, n := range r.Nodes() {
		if n.Role == "worker" {
			r.Talos.Break(n.Name, talos.UpgradeFallsBack)
		}
	}

	assert.Regexp(t, `roll-worker-\d is not changed: it came back with Talos `+from, failUp(t, r.Stack))

	var canaries []string

	for _, n := range r.Nodes() {
		if n.Role == "worker" && slices.Contains(eventsOf(r, begun)[n.Name], talos.Upgraded) {
			canaries = append(canaries, n.Name)
		}

		assert.Equal(t, map[bool]string{true: to, false: from}[n.Role == "controlplane"], n.Talos, n.Name)
		r.Talos.Mend(n.Name, talos.UpgradeFallsBack)
	}

	assert.Len(t, canaries, 1, "the others wait for the canary")
}

// TestNewestTalos brings clusters of the newest versions up, and changes their configuration. Nodes of Talos 1.14 apply
// each at once and say of none that it waits for a reboot: the program knows which do, and reboots the nodes itself.
func TestNewestTalos(t *testing.T) {
	t.Parallel()

	for _, v := range [][2]string{{"v1.13.9", "v1.36.1"}, {"v1.14.1", "v1.37.0"}} {
		t.Run(v[0], func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, strings.NewReplacer("v1.11.6", v[0], "v1.33.6", v[1], "ha: true", "ha: false",
				"count: 3", "count: 1", "10.40.0.11-13", "10.40.0.11").Replace(rolling)))
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))
			requireNoChange(t, r.Stack)

			for _, c := range []struct {
				patch, apply string
				effect       impact.Effect
				events       []talos.EventKind
			}{
				{`machine: { sysctls: { vm.swappiness: "1" } }`, "auto", impact.EffectLive, nil},
				{`machine: { env: { NO_PROXY: a.example } }`, "noReboot", impact.EffectReboot, nil},
				{`machine: { env: { NO_PROXY: a.example } }`, "auto", impact.EffectReboot, nil},
				{`machine: { env: { NO_PROXY: b.example } }`, "staged", impact.EffectLive, []talos.EventKind{talos.Staged}},
			} {
				since := time.Now()

				set(t, r.Stack, "cluster.patches[0]", c.patch)
				set(t, r.Stack, "lifecycle.apply", c.apply)

				if c.apply == "noReboot" {
					assert.Contains(t, failUp(t, r.Stack), "lifecycle.apply: noReboot forbids changes that need a "+
						"reboot")
					assert.Empty(t, eventsOf(r, since))

					continue
				}

				table := impactTable(t, r)
				assert.Equal(t, map[string]impact.Effect{"roll-control-1": c.effect, "roll-worker-1": c.effect},
					effects(table), c.patch)

				up(t, r.Stack)
				require.NoError(t, r.WaitReady(t.Context(), wait))
				assert.Equal(t, effects(table), happened(r, since), c.patch)
				assert.Empty(t, r.Talos.Violations(since))
				assert.Empty(t, cordoned(t, r))

				if c.events != nil {
					assert.Equal(t, c.events, slices.Compact(eventsOf(r, since)["roll-worker-1"]))
				}

				requireNoChange(t, r.Stack)
			}
		})
	}
}

// cordoned are the nodes that take no pods.
func cordoned(t *testing.T, r *rehearsal.Rehearsal) []string {
	t.Helper()

	outputs, err := r.Stack.Outputs(t.Context())
	require.NoError(t, err)

	list, err := kubernetesClient(t, outputs).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var names []string

	for _, n := range list.Items {
		if n.Spec.Unschedulable {
			names = append(names, n.Name)
		}
	}

	return names
}

// TestConfigurationChanges: what Talos takes at once is applied at once, what it does not reboots nodes in turns, or
// waits, or is refused.
func TestConfigurationChanges(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, rolling), onRealKubernetes)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	since := time.Now()

	set(t, r.Stack, "cluster.patches[0]", `machine: { sysctls: { vm.swappiness: "1" } }`)

	table := impactTable(t, r)
	up(t, r.Stack)
	assert.Equal(t, effects(table), happened(r, since))
	assert.Equal(t, impact.EffectLive, table["roll-control-1"].Effect)
	assert.Equal(t, []impact.Setting{{Path: "machine.sysctls.vm.swappiness", After: "1"}},
		table["roll-control-1"].Settings)

	set(t, r.Stack, "cluster.patches[1]", `machine: { env: { NO_PROXY: "secret.example" } }`)
	set(t, r.Stack, "lifecycle.apply", "noReboot")

	since = time.Now()
	assert.Contains(t, failPreview(t, r.Stack),
		"lifecycle.apply: noReboot forbids changes that need a reboot, and this one does (machine.env.NO_PROXY); "+
			"revert it, or set auto or staged")
	failUp(t, r.Stack)
	assert.Empty(t, eventsOf(r, since))

	set(t, r.Stack, "lifecycle.apply", "auto")

	// Nodes that reboot for another reason go to another version of Kubernetes in its own order all the same.
	set(t, r.Stack, "cluster.versions.kubernetes", "v1.34.2")

	table = impactTable(t, r)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, effects(table), happened(r, since))
	assert.Equal(t, impact.EffectReboot, table["roll-worker-1"].Effect)
	assert.Equal(t, []impact.Setting{
		{Path: "machine.env.NO_PROXY", Secret: true},
		{
			Path: "machine.kubelet.image", Before: "ghcr.io/siderolabs/kubelet:v1.33.6",
			After: "ghcr.io/siderolabs/kubelet:v1.34.2",
		},
	}, table["roll-worker-1"].Settings)
	assert.Empty(t, r.Talos.Violations(since))
	requireOrderly(t, r, since, 2)
	requireVoters(t, r, 3)
	assert.Empty(t, cordoned(t, r))

	since = time.Now()

	set(t, r.Stack, "defaults.memoryMiB", "6144")
	set(t, r.Stack, "lifecycle.upgrade.canary", "true")

	// One worker goes first, and its VM does not restart. The others are not begun; the next update makes up for it.
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox,
		Call: regexp.MustCompile(`/qemu/5\d\d/status/(shutdown|reboot)$`), Kind: journal.Refuse,
	})

	table = impactTable(t, r)
	failUp(t, r.Stack)
	assert.Len(t, changedVMs(r, since), 4, "three control planes and the canary")

	left := impactTable(t, r)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, effects(table), happened(r, since))
	requireCanary(t, r, since)
	requireOrderly(t, r, since, 2)
	requireVoters(t, r, 3)
	assert.Empty(t, cordoned(t, r))

	for name, row := range left {
		assert.Equal(t, row.Role == "worker", row.Effect == impact.EffectReboot, "%s: %v", name, row)
	}

	set(t, r.Stack, "cluster.patches[1]", `machine: { env: { NO_PROXY: "other.example" } }`)
	set(t, r.Stack, "lifecycle.apply", "staged")

	since = time.Now()
	up(t, r.Stack)

	for name, did := range eventsOf(r, since) {
		// The program stages it first, over a connection that it has checked; the provider then sends the same again.
		assert.Equal(t, []talos.EventKind{talos.Staged}, slices.Compact(did), name)
	}

	requireNoChange(t, r.Stack)
}

// TestIllegalJump: versions that cannot follow each other are refused in the preview, with the way to go. On that way
// Talos and Kubernetes change in one update.
func TestIllegalJump(t *testing.T) {
	t.Parallel()

	p := pair{"factory", "nocloud", "iso", "reserved"}
	r := rehearse(t, stackFile(t, strings.NewReplacer("v1.12.4", "v1.9.5", "v1.34.2", "v1.31.4").Replace(p.stack())))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	since := time.Now()

	set(t, r.Stack, "cluster.versions.talos", "v1.12.4")

	const refused = "pair-control-1: cluster.versions.talos: Talos v1.9.5 cannot become v1.12.4 at once: host version " +
		"1.9.5 is too old to upgrade to " +
		"Talos 1.12.4; go through the last v1.10, then the last v1.11, each in an update of its own, and then to " +
		"v1.12.4"

	assert.Contains(t, failPreview(t, r.Stack), refused)

	rows, _, err := impactcmd.Impact(t.Context(), r.Stack, newOutput(t))
	require.ErrorContains(t, err, refused)
	require.NotContains(t, err.Error(), "preview failed", "only what says why")
	assert.Equal(t, strings.TrimPrefix(refused, "pair-control-1: "), rows[0].Refused)

	assert.Contains(t, failUp(t, r.Stack), refused)
	assert.Empty(t, eventsOf(r, since))

	// One version on the way, and one of Kubernetes with it.
	set(t, r.Stack, "cluster.versions.talos", "v1.11.6")
	set(t, r.Stack, "cluster.versions.kubernetes", "v1.32.3")

	table := impactTable(t, r)
	assert.Equal(t, "Talos v1.9.5 becomes v1.11.6, Kubernetes v1.31.4 becomes v1.32.3", table["pair-control-1"].Why)

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, effects(table), happened(r, since))
	assert.Empty(t, r.Talos.Violations(since))
	requireNoChange(t, r.Stack)
}

// TestKubernetesUpgrade goes one minor version up: no node goes down, every step is within the version skew policy, and
// nothing begins before the images are there.
func TestKubernetesUpgrade(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, rolling), onRealKubernetes)
	// What the next version has no more.
	set(t, r.Stack, "cluster.patches[0]",
		"cluster:\n  apiServer:\n    extraArgs:\n      feature-gates: LegacySidecarContainers=true\n")
	set(t, r.Stack, "cluster.patches[1]", "machine:\n  kubelet:\n    extraArgs:\n      cloud-config: /etc/cloud.conf\n")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	since := time.Now()

	set(t, r.Stack, "cluster.versions.kubernetes", "v1.32.0")
	assert.Contains(t, failPreview(t, r.Stack), "cluster.versions.kubernetes: Kubernetes v1.33.6 cannot become v1.32.0: "+
		"a downgrade to an earlier minor version is not supported; set v1.33 or the next")

	set(t, r.Stack, "cluster.versions.kubernetes", "v1.34.2")
	assert.Contains(t, failPreview(t, r.Stack), "cluster.patches[0]: kube-apiserver does not start with the feature gate "+
		"LegacySidecarContainers in cluster.apiServer.extraArgs: Kubernetes 1.34 removed it")

	set(t, r.Stack, "cluster.patches[0]", "cluster:\n  apiServer:\n    extraArgs:\n      v: \"2\"\n")
	r.Talos.Withdraw("kube-scheduler:v1.34.2")

	previewed := newOutput(t)
	impactTableIn(t, r, previewed)
	failed := failUp(t, r.Stack)
	assert.Contains(t, failed, "cannot pull registry.k8s.io/kube-scheduler:v1.34.2")
	assert.Empty(t, eventsOf(r, since))

	for _, said := range []string{previewed.String(), failed} {
		assert.Regexp(t,
			`kube-apiserver of roll-control-\d runs with the feature gate LegacySidecarContainers, which is removed in Kubernetes v1.34.2: `+
				"it would not start; remove it in a separate update first", said)
		assert.Regexp(t,
			`kubelet of roll-control-\d runs with the flag --cloud-config, which is removed in Kubernetes v1.34.2: `, said)
	}

	assert.Contains(t, previewed.String(), "kubelet of roll-worker-1 runs with the flag --cloud-config")

	r.Talos.Publish("kube-scheduler:v1.34.2")

	// As it says: the flag goes in an update before, for no kubelet of the new version starts with it.
	set(t, r.Stack, "cluster.versions.kubernetes", "v1.33.6")
	set(t, r.Stack, "cluster.patches[1]", "machine:\n  kubelet:\n    extraArgs:\n      v: \"2\"\n")
	up(t, r.Stack)
	set(t, r.Stack, "cluster.versions.kubernetes", "v1.34.2")

	since = time.Now()
	table := impactTable(t, r)

	// A control plane that is busy misses some questions once its images are there.
	busy := journal.Fault{
		Face: journal.Talos, Subject: "roll-control-1", Call: regexp.MustCompile(`/Version$`), Kind: journal.Refuse, Times: 2,
	}
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Talos, Subject: "roll-control-1", Call: regexp.MustCompile(`/ImagePull$`), Kind: journal.Interfere,
		Before: func(journal.Entry) { r.Lab.Journal().Plant(busy) },
	})

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	missed := 0

	for _, e := range r.Lab.Journal().Entries() {
		if e.Fault == string(journal.Refuse) {
			missed++
		}
	}

	assert.Equal(t, busy.Times, missed)
	assert.Equal(t, effects(table), happened(r, since))
	assert.Empty(t, r.Talos.Violations(since))
	assert.Empty(t, r.Talos.Outages(since))

	outputs, err := r.Stack.Outputs(t.Context())
	require.NoError(t, err)

	api := kubernetesClient(t, outputs)

	list, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 6)

	for _, n := range list.Items {
		assert.Equal(t, "v1.34.2", n.Status.NodeInfo.KubeletVersion, n.Name)
	}

	proxy, err := api.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "registry.k8s.io/kube-proxy:v1.34.2", proxy.Spec.Template.Spec.Containers[0].Image)

	for _, n := range r.Plan.ControlPlanes() {
		for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			pod, err := api.CoreV1().Pods("kube-system").Get(t.Context(), component+"-"+n.Name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "registry.k8s.io/"+component+":v1.34.2", pod.Spec.Containers[0].Image)
		}
	}

	requireNoChange(t, r.Stack)
}
