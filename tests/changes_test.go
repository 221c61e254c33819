package tests

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/impact"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// vmConfig is a VM's configuration as Proxmox VE has it.
func vmConfig(t *testing.T, r *rehearsal.Rehearsal, name string) map[string]any {
	t.Helper()

	v, there := r.Lab.World().Snapshot().VM(name)
	require.True(t, there, name)

	config, err := r.Lab.World().Config(v.Host, v.ID, true)
	require.NoError(t, err)

	return config
}

// vmids are the VMs of a stack by name.
func vmids(r *rehearsal.Rehearsal) map[string]int {
	found := map[string]int{}

	for _, v := range r.Lab.World().Snapshot().VMs {
		if !v.Template {
			found[v.Name] = v.ID
		}
	}

	return found
}

// TestShapeChanges changes the shape of a running node, for each way that a VM is made: nothing is made again, the disk
// grows, and an ISO file that has been taken out of its drive stays out.
func TestShapeChanges(t *testing.T) {
	t.Parallel()

	for _, p := range []pair{
		{"template", "metal", "", "reserved"}, {"iso", "nocloud", "", "static"}, {"factory", "metal", "disk", "static"},
	} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, p.stack()))
			up(t, r.Stack)

			const worker = "pair-worker-1"

			before, clonesAndCreates := vmids(r), len(calls(r, "POST /nodes/"))

			if p.source == "iso" {
				assert.Equal(t, "none,media=cdrom", vmConfig(t, r, worker)["ide2"], "taken out before the node was configured")
			}

			set(t, r.Stack, "pools.worker.cores", "4")
			set(t, r.Stack, "pools.worker.diskGiB", "50")
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))

			config := vmConfig(t, r, worker)
			assert.EqualValues(t, 4, config["cores"])
			assert.Contains(t, config["scsi0"], "size=50G")
			assert.Equal(t, before, vmids(r))

			if p.source == "iso" {
				assert.Equal(t, "none,media=cdrom", config["ide2"])
			}

			for _, made := range calls(r, "POST /nodes/")[clonesAndCreates:] {
				assert.NotRegexp(t, `/qemu$|/clone$`, made)
			}

			requireSettled(t, r.Stack)

			if p.source != "iso" {
				return
			}

			restarts := len(calls(r, "POST /nodes/"))

			set(t, r.Stack, "pools.worker.cpuUnits", "50")
			assert.Contains(t, upResult(t, r.Stack).StdOut, worker+": CPU weight changes from 100 to 50; the VM runs on")
			assert.EqualValues(t, 50, vmConfig(t, r, worker)["cpuunits"])
			assert.Len(t, calls(r, "POST /nodes/"), restarts, "nothing restarts")
			requireNoChange(t, r.Stack)
		})
	}
}

// TestNewVersion: another version is no reason to make a node again. The image of nodes to come follows it, running
// nodes are upgraded, also a lone control plane. They keep the defaults of the version that the cluster was made with,
// until these are moved.
func TestNewVersion(t *testing.T) {
	t.Parallel()

	p := pair{"factory", "nocloud", "iso", "reserved"}
	r := rehearse(t, stackFile(t, strings.Replace(p.stack(), "v1.12.4", "v1.11.6", 1)), onRealKubernetes)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	before := vmids(r)

	set(t, r.Stack, "cluster.versions.talos", "v1.12.4")

	out := newOutput(t)
	preview, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	assert.NotContains(t, previewed(preview.ChangeSummary), "delete")
	assert.Contains(t, out.String(),
		"pair-control-1: upgrade, for Talos v1.11.6 becomes v1.12.4; etcd meanwhile: 0 of 1, 1 needed: no quorum")
	assert.Contains(t, out.String(), "pair-worker-1: upgrade, for Talos v1.11.6 becomes v1.12.4")

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, before, vmids(r))

	for _, n := range r.Nodes() {
		assert.Equal(t, "v1.12.4", n.Talos)
	}

	machines, since := uuids(t, r), time.Now()

	set(t, r.Stack, "cluster.versions.contract", "v1.12.4")

	table := impactTable(t, r)
	assert.Equal(t, map[string]impact.Effect{"pair-control-1": impact.EffectReboot, "pair-worker-1": impact.EffectReboot},
		effects(table))

	var settings []string
	for _, s := range table["pair-worker-1"].Settings {
		settings = append(settings, s.String())
	}

	assert.Equal(t, []string{
		"HostnameConfig.apiVersion: v1alpha1 (new)", "HostnameConfig.auto: off (new)",
		"HostnameConfig.hostname: pair-worker-1 (new)",
		"HostnameConfig.kind: HostnameConfig (new)", "machine.features.apidCheckExtKeyUsage: true (goes)",
		"machine.features.rbac: true (goes)",
		"machine.features.stableHostname: true (goes)", "machine.install.grubUseUKICmdline: true (new)",
		"machine.network.hostname: pair-worker-1 (goes)",
	}, settings)

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, effects(table), happened(r, since))
	assert.Equal(t, machines, uuids(t, r))
	requireNoChange(t, r.Stack)
}

// TestReservedBecomesStatic moves one node after the other from its reservation to an address of its own: no VM is made
// again, and the node needs no DHCP server any more.
func TestReservedBecomesStatic(t *testing.T) {
	t.Parallel()

	p := pair{"iso", "metal", "", "reserved"}
	r := rehearse(t, stackFile(t, strings.Replace(p.stack(), "worker: { role: worker, count: 1,",
		`worker: { role: worker, nodes: { "1": {} },`, 1)))
	up(t, r.Stack)

	before := r.Lab.World().Snapshot()

	set(t, r.Stack, `pools.worker.nodes["1"].addressing`, "static")

	changes := upChanges(t, r.Stack)
	assert.Equal(t, 1, changes["update"], "one node, and its configuration only")
	assert.Zero(t, changes["replace"])

	set(t, r.Stack, "pools.control.addressing", "static")
	up(t, r.Stack)
	assert.Equal(t, before, r.Lab.World().Snapshot())
	requireNoChange(t, r.Stack)

	// The DHCP server forgets both, and the machines start again.
	for _, n := range r.Plan.Nodes() {
		r.Lab.Reserve(map[string]netip.Addr{n.MAC: {}})
	}

	for _, n := range r.Plan.Nodes() {
		reset(t, r, n.Name)
	}

	// A Node stays ready in Kubernetes while its machine starts: its address is what the machine itself has to say.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for i, n := range r.Nodes() {
			assert.Equal(c, r.Plan.Nodes()[i].Address.String(), n.Address)
		}
	}, wait, 50*time.Millisecond)
	require.NoError(t, r.WaitReady(t.Context(), wait))
}

// reset starts a VM again as its reset button does, and returns when what ran in it has ended.
func reset(t *testing.T, r *rehearsal.Rehearsal, name string) {
	t.Helper()

	w := r.Lab.World()
	v, found := w.Snapshot().VM(name)
	require.True(t, found, name)

	upid, err := w.Reset(world.Caller{ID: r.Lab.Credentials().TokenID}, v.Host, v.ID)
	require.NoError(t, err)
	ended(t, r, v.Host, upid)
}

// ended waits for the end of a task.
func ended(t *testing.T, r *rehearsal.Rehearsal, host, upid string) {
	t.Helper()

	require.Eventually(t, func() bool {
		task, err := r.Lab.World().Task(host, upid)

		return err == nil && task.ExitStatus == "OK"
	}, wait, 10*time.Millisecond)
}

// TestGPURemoved takes the first of three GPUs away: its node goes, and the other two are not touched, neither in the
// lab's world nor in the stack's state.
func TestGPURemoved(t *testing.T) {
	t.Parallel()

	three := `      gpus:
        "1": { bdf: "0000:01:00.0" }
        "2": { bdf: "0000:02:00.0" }
        "3": { bdf: "0000:03:00" }
`
	text, _ := devText(t)
	r := rehearse(t, stackFile(t, strings.Replace(text, "      gpus:\n        \"1\": { bdf: \"0000:01:00.0\" }\n", three,
		1)))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	before, identities := r.Lab.World().Snapshot(), urns(t, r.Stack)
	require.Len(t, before.Mappings, 3)
	assert.Contains(t, vmConfig(t, r, "k3s-dev-gpu-3")["hostpci0"], "mapping=k3s-dev-gpu-3,pcie=1,rombar=1")

	// A VM of others has come to use the mapping: it would not start without it.
	w := r.Lab.World()
	task, err := w.Create(administrator, "pve", world.CreateRequest{
		VMID: 900, Conf: map[string]string{"name": "app", "hostpci1": "mapping=k3s-dev-gpu-1"},
	})
	require.NoError(t, err)
	ended(t, r, "pve", task)

	const used = "resource mapping k3s-dev-gpu-1 is to be changed or deleted, and VM 900 (app) on host pve has it, which " +
		"is not in this stack: that VM would not start without it. Run 'qm set 900 --delete hostpci1' on that host, or " +
		"give that VM another mapping, then run 'pulumi up' again"

	unset(t, r.Stack, `pools.gpu.gpus["1"]`)
	assert.Contains(t, failPreview(t, r.Stack), used)
	assert.Contains(t, failUp(t, r.Stack), used)
	assert.Len(t, w.Snapshot().Mappings, 3)

	require.NoError(t, w.Update(administrator, "pve", 900, world.UpdateRequest{Delete: []string{"hostpci1"}}))
	up(t, r.Stack)

	task, err = w.Destroy(administrator, "pve", 900, world.DestroyRequest{})
	require.NoError(t, err)
	ended(t, r, "pve", task)

	after := w.Snapshot()
	assert.Len(t, after.VMs, len(before.VMs)-1)
	assert.Subset(t, before.VMs, after.VMs)
	assert.Subset(t, before.Mappings, after.Mappings)
	assert.Len(t, after.Mappings, 2)

	gone := slices.DeleteFunc(identities, func(urn string) bool { return slices.Contains(urns(t, r.Stack), urn) })
	for _, urn := range gone {
		assert.Contains(t, urn, "::k3s-dev-gpu-1")
	}

	assert.Len(t, gone, 4, "the node, its VM, its configuration and its mapping: %v", gone)
	requireNoChange(t, r.Stack)
}

// TestGPUOnControlPlane has a cluster of one node, with a GPU: it runs the pods, and a change restarts it as any control
// plane. With the first worker it takes no more pods, and keeps those that it runs.
func TestGPUOnControlPlane(t *testing.T) {
	t.Parallel()

	text := pair{"template", "metal", "", "reserved"}.stack()
	text = strings.Replace(text, "controlplane, count: 1,",
		`controlplane, gpus: { "1": { host: pve2, bdf: "0000:01:00.0" } },`, 1)
	r := rehearse(t, stackFile(t, strings.Replace(text, "worker, count: 1", "worker, host: pve2, count: 0", 1)))

	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	const control = "pair-control-1"

	taints := func() []corev1.Taint {
		node, err := api.CoreV1().Nodes().Get(t.Context(), control, metav1.GetOptions{})
		require.NoError(t, err)

		return node.Spec.Taints
	}

	assert.Contains(t, vmConfig(t, r, control)["hostpci0"], "mapping="+control+",pcie=1,rombar=1")
	assert.Equal(t, "0000:01:00.0", *contractOf(t, upResult(t, r.Stack)).BootstrapNodes.ControlPlane[0].GPU)
	assert.Empty(t, taints())

	set(t, r.Stack, "pools.control.memoryMiB", "6144")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.EqualValues(t, 6144<<20, machine(t, r, control).Memory)

	set(t, r.Stack, "pools.worker.count", "1")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Len(t, taints(), 1)
	requireNoChange(t, r.Stack)
}

// TestGPUAway takes a GPU out of its host, and then the host off the network: what is there already stays as it is, and
// what is elsewhere can be changed.
func TestGPUAway(t *testing.T) {
	t.Parallel()

	text := strings.Replace(pair{"template", "metal", "", "reserved"}.stack(), "template: {",
		"template: { gpuWorker: talos-v1.12.4-base,", 1)
	text += "    gpu: { role: worker, addresses: 10.40.0.31-39, gpus: { \"1\": { host: pve2, bdf: \"0000:01:00.0\" } } }\n"

	r := rehearse(t, stackFile(t, text))
	up(t, r.Stack)

	before := r.Lab.World().Snapshot().Mappings
	require.Len(t, before, 1)

	require.NoError(t, r.Lab.World().RemovePCI("pve2", "0000:01:00.0"))
	set(t, r.Stack, "pools.control.cores", "3")
	up(t, r.Stack)
	requireNoChange(t, r.Stack)

	require.NoError(t, r.Lab.World().SetOffline("pve2", true))
	set(t, r.Stack, "pools.control.cores", "4")
	up(t, r.Stack)
	assert.EqualValues(t, 4, vmConfig(t, r, "pair-control-1")["cores"])

	require.NoError(t, r.Lab.World().SetOffline("pve2", false))
	requireNoChange(t, r.Stack)
	assert.Equal(t, before, r.Lab.World().Snapshot().Mappings)
}

// TestBadImages: a server that sends a page instead of an image, and a download that is cut off, stop the run before a
// VM is made of them; the next run goes on.
func TestBadImages(t *testing.T) {
	t.Parallel()

	p := pair{"factory", "nocloud", "iso", "reserved"}
	r := rehearse(t, stackFile(t, p.stack()))

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Factory, Call: regexp.MustCompile(`/image/.*\.iso`), Kind: journal.Replace, Message: "Not Found",
	})

	said := failUp(t, r.Stack)
	assert.Contains(t, said, "/v1.12.4/nocloud-amd64.iso holds 9 bytes: that is not an image. Open the URL, then "+
		"correct it, or the settings of image.factory")
	assert.Empty(t, vmids(r))

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)
}

// TestBadImageOfUpgrade: the image of a new version is for nodes that come later. What is none is noticed at once.
func TestBadImageOfUpgrade(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"factory", "nocloud", "iso", "reserved"}.stack()))
	up(t, r.Stack)

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Factory, Call: regexp.MustCompile(`^GET /image/.*\.iso`), Kind: journal.Replace, Message: "Not Found",
	})
	set(t, r.Stack, "cluster.versions.talos", "v1.12.5")

	said := failUp(t, r.Stack)
	assert.Contains(t, said, "has 9 bytes: that is not an image. Delete it there ('pvesm free local:iso/")
}

// TestForgottenImage: a refresh while Proxmox VE does not answer has the provider drop images from the state. The next
// update takes the file that is there, or gets it again, and the nodes that were made from it are left alone.
func TestForgottenImage(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"factory", "nocloud", "iso", "reserved"}.stack()))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	d := decrypted(t, r.Stack)
	isImage := func(urn resource.URN) bool { return urn.Type() == "proxmoxve:Download/file:File" }

	before, held := len(d.Resources), r.Lab.World().Snapshot()
	d.Resources = slices.DeleteFunc(d.Resources, func(one apitype.ResourceV3) bool { return isImage(one.URN) })
	images := before - len(d.Resources)
	require.Positive(t, images)

	for i := range d.Resources {
		one := &d.Resources[i]
		one.Dependencies = slices.DeleteFunc(one.Dependencies, isImage)

		for key, urns := range one.PropertyDependencies {
			one.PropertyDependencies[key] = slices.DeleteFunc(urns, isImage)
		}
	}

	text, err := json.Marshal(d)
	require.NoError(t, err)
	require.NoError(t, r.Stack.Import(t.Context(), apitype.UntypedDeployment{Version: 3, Deployment: text}))

	changes := upChanges(t, r.Stack)
	assert.Equal(t, images, changes["create"])
	assert.Zero(t, changes["update"]+changes["replace"]+changes["delete"], "%v", changes)
	assert.Equal(t, held.VMs, r.Lab.World().Snapshot().VMs)
	requireNoChange(t, r.Stack)
}
