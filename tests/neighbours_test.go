package tests

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/components/talosapi"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// shared is a cluster that an autoscaler and Proxmox CSI work on, too.
const shared = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [{ name: pve1 }, { name: pve2 }] }
  talos-proxmox:cluster: { name: lab, region: lan, versions: { talos: v1.12.3, kubernetes: v1.34.1 } }
  talos-proxmox:image: { source: factory, platform: nocloud }
  talos-proxmox:network: { cidr: 192.168.10.0/24, gateway: 192.168.10.1 }
  talos-proxmox:outputs: { workerConfiguration: autoscaled }
  talos-proxmox:pools:
    control: { role: controlplane, count: 1, addresses: 192.168.10.11 }
    worker: { role: worker, count: 2, addresses: 192.168.10.21-29 }
    autoscaled: { role: worker, count: 0, vmids: 701-709, addresses: 192.168.10.31-39 }
`

// TestForeignWorker: a worker that an autoscaler has made of the output talos_worker_configuration is left alone by all
// that happens to the cluster: labels, upgrades, removals and its end.
func TestForeignWorker(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, shared))
	outputs := upResult(t, r.Stack).Outputs
	require.True(t, outputs[contract.OutputWorkerConfiguration].Secret)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	const name = "karpenter-x7k2p"

	api := kubernetesClient(t, outputs)
	addForeignWorker(t, r, outputs, name)
	require.Eventually(t, func() bool { return slices.Contains(readyNodes(t, api), name) }, wait, 100*time.Millisecond)

	before, events := kubeNode(t, api, name), time.Now()
	require.Empty(t, before.Labels[corev1.LabelTopologyRegion])

	same := func(after string) {
		t.Helper()

		n := kubeNode(t, api, name)
		assert.Equal(t, before.UID, n.UID, after)
		assert.Equal(t, before.Labels, n.Labels, after)
		assert.Equal(t, before.Spec, n.Spec, after)
		assert.Equal(t, before.Status.NodeInfo, n.Status.NodeInfo, after)
		assert.Empty(t, eventsOf(r, events)[name], after)
		assert.Contains(t, readyNodes(t, api), name, after)
	}

	requireNoChange(t, r.Stack)
	same("a preview")

	set(t, r.Stack, "pools.worker.labels.tier", "web")
	set(t, r.Stack, "pools.worker.count", "1")
	up(t, r.Stack)
	same("a removal")

	set(t, r.Stack, "cluster.versions.kubernetes", "v1.34.2")
	set(t, r.Stack, "cluster.versions.talos", "v1.12.4")
	up(t, r.Stack)
	assert.Equal(t, "v1.34.2", kubeNode(t, api, "lab-worker-1").Status.NodeInfo.KubeletVersion)
	same("upgrades")
	requireNoChange(t, r.Stack)

	// One that is broken keeps no worker of the stack from going down: it is not among those that may be unavailable.
	v, there := r.Lab.World().Snapshot().VM(name)
	require.True(t, there)
	stop(t, r, v)
	require.Eventually(t, func() bool { return slices.Contains(readyNodes(t, api), name+" (not ready)") }, wait,
		100*time.Millisecond)

	set(t, r.Stack, "pools.worker.cores", "4")
	up(t, r.Stack)

	destroy(t, r.Stack)

	_, there = r.Lab.World().Snapshot().VM(name)
	assert.True(t, there, "the VM of another is no part of the stack")
}

func kubeNode(t *testing.T, api kubernetes.Interface, name string) *corev1.Node {
	t.Helper()

	n, err := api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)

	return n
}

func stop(t *testing.T, r *rehearsal.Rehearsal, v world.VMState) {
	t.Helper()

	_, err := r.Lab.World().Stop(operator(r), v.Host, v.ID)
	require.NoError(t, err)
}

func operator(r *rehearsal.Rehearsal) world.Caller {
	return world.Caller{ID: r.Lab.Credentials().TokenID}
}

// addForeignWorker makes a VM as an autoscaler does: without the tags of the cluster, and with the configuration that
// the stack gives out.
func addForeignWorker(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap, name string) {
	t.Helper()

	const vmid, mac = 9001, "BC:24:11:00:90:01"

	address := netip.MustParseAddr(addressOf(r, "lab-worker-1"))
	for range 100 {
		address = address.Next()
	}

	r.Lab.Reserve(map[string]netip.Addr{mac: address})

	image := r.Lab.World().Downloads()[0]

	_, err := r.Lab.World().Create(operator(r), image.Host, world.CreateRequest{VMID: vmid, Start: true, Conf: map[string]string{
		"name": name, "cores": "2", "memory": "4096", "cpu": "host", "ostype": "l26", "scsihw": "virtio-scsi-pci",
		"scsi0": "local-lvm:40", "ide2": image.Volume + ",media=cdrom", "boot": "order=scsi0;ide2",
		"net0": "virtio=" + mac + ",bridge=vmbr0", "tags": "karpenter",
	}})
	require.NoError(t, err)

	given, err := configloader.NewFromBytes([]byte(outputs[contract.OutputWorkerConfiguration].Value.(string)))
	require.NoError(t, err)

	patches, err := configpatcher.LoadPatches([]string{
		"apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: " + name,
	})
	require.NoError(t, err)

	patched, err := configpatcher.Apply(configpatcher.WithConfig(given), patches)
	require.NoError(t, err)

	text, err := patched.Bytes()
	require.NoError(t, err)

	target := talosapi.Target{Name: name, Address: address.String()}
	require.NoError(t, talosapi.WaitAnswering(t.Context(), target, wait, func(string) {}))
	require.Eventually(t, func() bool {
		m, err := talosapi.ConnectMaintenance(t.Context(), target)
		if err != nil {
			return false
		}

		defer m.Close()

		return m.Apply(context.WithoutCancel(t.Context()), text) == nil
	}, wait, 100*time.Millisecond)
}

// TestForeignDisks: a disk that Proxmox CSI attaches is no drift, keeps its node where it is, and stays when its node is
// deleted. The zone of a node follows its VM.
func TestForeignDisks(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, shared))
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	const worker, volume = "lab-worker-2", "local-lvm:vm-9999-disk-0"

	w := r.Lab.World()
	zone := func() string { return kubeNode(t, api, worker).Labels[corev1.LabelTopologyZone] }
	home := machine(t, r, worker).Host
	away := map[string]string{"pve1": "pve2", "pve2": "pve1"}[home]

	require.Equal(t, home, zone())

	// Moved by hand, and back by the program.
	v, _ := w.Snapshot().VM(worker)
	migrate(t, r, v.ID, home, away)

	_, err := r.Stack.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Equal(t, away, zone())

	set(t, r.Stack, "placement.rebalance", "true")
	up(t, r.Stack)
	assert.Equal(t, home, machine(t, r, worker).Host)
	assert.Equal(t, home, zone())
	unset(t, r.Stack, "placement.rebalance")
	up(t, r.Stack)

	// Disks of CSI belong to a VMID of its own.
	_, err = w.Create(operator(r), home, world.CreateRequest{VMID: 9999, Conf: map[string]string{
		"name": "volumes", "scsihw": "virtio-scsi-pci", "scsi0": "local-lvm:1",
	}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // when the task that makes it has ended
		return w.Update(operator(r), home, v.ID,
			world.UpdateRequest{Conf: map[string]string{"scsi5": volume + ",backup=0"}}) == nil
	}, wait, 100*time.Millisecond)

	out := newOutput(t)
	preview, err := r.Stack.Preview(t.Context(), optpreview.Refresh(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	requireOnlySame(t, previewed(preview.ChangeSummary))

	_, err = r.Stack.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	requireNoChange(t, r.Stack)
	require.Contains(t, vmConfig(t, r, worker)["scsi5"], volume)

	// A change of the VM leaves the disk attached.
	set(t, r.Stack, "pools.worker.cores", "4")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	require.Contains(t, vmConfig(t, r, worker)["scsi5"], volume)
	assert.EqualValues(t, 4, vmConfig(t, r, worker)["cores"])

	// A plan that would move it is refused.
	set(t, r.Stack, "placement.rebalance", "true")
	set(t, r.Stack, "placement.strategy", "pin")

	for _, pool := range []string{"control", "worker"} {
		set(t, r.Stack, "pools."+pool+".host", away)
	}

	said := failPreview(t, r.Stack)
	assert.Contains(t, said, "moves "+worker+" from host "+home+" to "+away)
	assert.Contains(t, said, "Proxmox VE does not migrate local ones (given: scsi5 "+volume+")")

	for _, key := range []string{"placement.rebalance", "placement.strategy", "pools.control.host", "pools.worker.host"} {
		unset(t, r.Stack, key)
	}

	set(t, r.Stack, "pools.worker.count", "1")
	up(t, r.Stack)

	_, there := w.Snapshot().VM(worker)
	assert.False(t, there)
	assert.True(t, slices.ContainsFunc(w.Snapshot().Volumes, func(v world.VolumeState) bool {
		return v.ID == volume && strings.Contains(v.Host, home)
	}), "the disk of another stays")
}
