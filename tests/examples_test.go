package tests

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/files"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// example is the stack of an example, with some of its lines replaced.
func example(t *testing.T, name string, oldnew ...string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(root, "stacks", "examples", "Pulumi."+name+".yaml"))
	require.NoError(t, err)

	for i := 0; i < len(oldnew); i += 2 {
		require.Contains(t, string(text), oldnew[i], "the example has changed: adjust this test")
	}

	return stackFile(t, strings.NewReplacer(oldnew...).Replace(string(text)))
}

// TestAtlas brings the home cluster up as its document describes it, with an image for each node and with one for all.
func TestAtlas(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		change  []string
		images  int
		proxmox world.Version
	}{
		"an image for each node": {nil, 5, world.Version9},
		"one image for all":      {[]string{"platform: metal", "platform: nocloud"}, 1, world.Version8},
		"disks": {[]string{
			"format: iso", "format: disk", "    storage:\n      disks: local\n",
			"    ssh: { username: root }\n    storage:\n      disks: local\n",
		}, 5, world.Version9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, example(t, "atlas", c.change...), func(o *rehearsal.Options) { o.Proxmox = c.proxmox })
			cluster := contractOf(t, upResult(t, r.Stack))
			require.NoError(t, r.WaitReady(t.Context(), wait))

			assert.Equal(t, []string{"talos-cp-01", "talos-cp-02", "talos-cp-03"}, names(cluster.BootstrapNodes.ControlPlane))
			assert.Equal(t, []string{"talos-worker-01", "talos-worker-02"}, names(cluster.BootstrapNodes.Workers))
			assert.Equal(t, 300, cluster.NodeVMIDMap["talos-cp-01"])

			downloads := r.Lab.World().Downloads()
			require.Len(t, downloads, c.images)

			var bytes int64
			for _, d := range downloads {
				require.Empty(t, d.Error)
				bytes += d.Bytes
			}

			t.Logf("%d downloads, %d MiB", len(downloads), bytes>>20)

			requireSettled(t, r.Stack)
			requireFiles(t, r, "kubeconfig", "talosconfig")

			destroy(t, r.Stack)
			assert.Empty(t, r.Leftovers(), "but the images, which are kept")
			assert.Len(t, r.Kept(), c.images)
			requireFiles(t, r, "kubeconfig", "talosconfig")
		})
	}
}

// TestEnterprise brings the cluster on three hosts up: addresses from the guest agents, the ISO file taken out of every
// drive, the document's five files written.
func TestEnterprise(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "enterprise"))

	found, err := previewWith(t, r.Stack, compilePolicies(t))
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.NoDirExists(t, filepath.Join(r.Stack.Workspace().WorkDir(), "talos"), "a preview writes nothing")

	result := upResult(t, r.Stack)
	cluster := contractOf(t, result)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	readCluster(t, result, 7)

	hosts := map[string]int{}

	for _, n := range cluster.BootstrapNodes.ControlPlane {
		hosts[n.Host]++

		require.NotNil(t, n.IP)
		assert.Contains(t, cluster.ControlPlaneEndpoints, *n.IP)
	}

	assert.Equal(t, map[string]int{"pve1": 1, "pve2": 1, "pve3": 1}, hosts)
	assert.Len(t, cluster.BootstrapNodes.Workers, 4)
	assert.Len(t, cluster.NodeIPMap, 7)

	for _, n := range r.Plan.Nodes() {
		config := vmConfig(t, r, n.Name)
		assert.Equal(t, "none,media=cdrom", config["ide2"])
		assert.Contains(t, config["net0"], ",tag=20", "all that a node sends and hears is in its VLAN")
	}

	requireSettled(t, r.Stack)

	found, err = previewWith(t, r.Stack, compilePolicies(t))
	require.NoError(t, err)
	assert.Empty(t, found, "now that all addresses are known")

	requireFiles(t, r, "control-plane.yaml", "kubeconfig", "secrets.yaml", "talosconfig", "worker.yaml")

	t.Run("control planes in production are protected", func(t *testing.T) { requireProtected(t, r) })

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

// TestEnterpriseOnProxmox8: the same cluster comes up, is settled and goes on the older version.
func TestEnterpriseOnProxmox8(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "enterprise"), onProxmox(world.Version8))
	readCluster(t, upResult(t, r.Stack), 7)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireSettled(t, r.Stack)
	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

// TestPlatform brings the cluster of platform.md up: what its addons need is there, and nodes say where they are.
func TestPlatform(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "platform"))
	result := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	api := kubernetesClient(t, result.Outputs)

	nodes, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 6)

	for i := range nodes.Items {
		n := &nodes.Items[i]
		assert.Equal(t, "example", n.Labels[corev1.LabelTopologyRegion], n.Name)
		assert.Contains(t, []string{"pve1", "pve2", "pve3"}, n.Labels[corev1.LabelTopologyZone], n.Name)
		assert.Equal(t, fmt.Sprintf("proxmox://example/%d", vmids(r)[n.Name]), n.Spec.ProviderID)
	}

	jobs, err := api.BatchV1().Jobs(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var installed []string
	for i := range jobs.Items {
		installed = append(installed, jobs.Items[i].Name)
	}

	for _, part := range []string{"cilium", "load-balancer", "metrics-server", "proxmox-csi", "proxmox-ccm", "flux"} {
		assert.True(t, slices.ContainsFunc(installed, func(name string) bool { return strings.Contains(name, part) }),
			"%s in %s", part, installed)
	}

	for login, namespace := range map[string]string{
		"proxmox-csi-plugin": "csi-proxmox", "proxmox-cloud-controller-manager": metav1.NamespaceSystem,
	} {
		secret, err := api.CoreV1().Secrets(namespace).Get(t.Context(), login, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Contains(t, string(secret.Data["config.yaml"]), "region: example")
		assert.Contains(t, string(secret.Data["config.yaml"]), r.Lab.Endpoint())
	}

	requireRepository(t, r, api, jobs.Items)
	requireSettled(t, r.Stack)
	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

// requireRepository holds that Flux follows the repository with its key, and that another key reaches the cluster where
// the Secret of the first is deleted.
func requireRepository(t *testing.T, r *rehearsal.Rehearsal, api kubernetes.Interface, jobs []batchv1.Job) {
	t.Helper()

	key := func() map[string][]byte {
		secret, err := api.CoreV1().Secrets("flux-system").Get(t.Context(), "flux-system", metav1.GetOptions{})
		if err != nil {
			return nil
		}

		return secret.Data
	}

	require.Equal(t, r.Lab.SSH().PrivateKey, string(key()["identity"]))
	assert.Contains(t, string(key()["known_hosts"]), "git.example.com ssh-ed25519 ")

	at := slices.IndexFunc(jobs, func(j batchv1.Job) bool { return strings.HasPrefix(j.Name, "install-flux-") })
	require.GreaterOrEqual(t, at, 0)

	files, err := api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), jobs[at].Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Contains(t, files.Data["object-1.yaml"], "url: ssh://git@git.example.com/platform.git")
	assert.Contains(t, files.Data["object-2.yaml"], "path: ./clusters/platform")

	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)

	require.NoError(t, api.CoreV1().Secrets("flux-system").Delete(t.Context(), "flux-system", metav1.DeleteOptions{}))

	other := string(pem.EncodeToMemory(block))
	require.NoError(t, r.Stack.SetConfig(t.Context(), config.Project+":gitOpsKey",
		auto.ConfigValue{Value: other, Secret: true}))
	up(t, r.Stack)
	require.Eventually(t, func() bool { return string(key()["identity"]) == other }, wait, 100*time.Millisecond)
}

// requireProtected holds that neither a destroy, whose preview comes first, nor a replacement gets to a control plane.
func requireProtected(t *testing.T, r *rehearsal.Rehearsal) {
	t.Helper()

	before := r.Lab.World().Snapshot()

	destroyed, replaced := newOutput(t), newOutput(t)

	_, err := r.Stack.PreviewDestroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(destroyed),
		optdestroy.ErrorProgressStreams(destroyed))
	require.Error(t, err)
	assert.Contains(t, destroyed.String(), "set lifecycle.teardown to true and run 'pulumi up', "+
		"then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'")

	_, err = r.Stack.Up(t.Context(), optup.ProgressStreams(replaced), optup.ErrorProgressStreams(replaced),
		optup.Replace([]string{urnOf(t, r, "enterprise-control-1-vm")}))
	require.Error(t, err)
	assert.Contains(t, replaced.String(), `enterprise-control-1-vm"`)
	assert.Contains(t, replaced.String(), "as it is currently marked for protection")
	require.Equal(t, before, r.Lab.World().Snapshot(), "nothing is done by half")
}

// TestMachinesOnly brings up the machines of the previous development environment: the contract and the previous outputs,
// no node touched.
func TestMachinesOnly(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s-dev-vms"))
	result := upResult(t, r.Stack)
	cluster := contractOf(t, result)

	assert.Equal(t, []string{"k3s-dev-gpu-1", "k3s-dev-gpu-2"}, names(cluster.BootstrapNodes.GPUWorkers))
	assert.Equal(t, "0000:02:00.0", *cluster.BootstrapNodes.GPUWorkers[1].GPU)
	assert.Empty(t, cluster.Versions.Kubernetes)

	assert.Equal(t, []any{601.0, 602.0}, result.Outputs[contract.OutputGPUWorkerVMIDs].Value)
	assert.Equal(t, []any{"0000:01:00.0", "0000:02:00.0"}, result.Outputs[contract.OutputGPUWorkerPCIBDFs].Value)
	assert.Equal(t, []any{addressOf(r, "k3s-dev-worker-1"), addressOf(r, "k3s-dev-worker-2")},
		result.Outputs[contract.OutputWorkerIPs].Value)
	assert.NotContains(t, result.Outputs, contract.OutputKubeconfig)

	for _, e := range r.Lab.Journal().Entries() {
		assert.NotEqual(t, "talos", string(e.Face), "%v", e)
	}

	requireSettled(t, r.Stack)
	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

func names(nodes []contract.BootstrapNode) []string {
	var found []string
	for _, n := range nodes {
		found = append(found, n.Name)
	}

	return found
}

// requireFiles holds which files the stack has left, readable for their owner only.
func requireFiles(t *testing.T, r *rehearsal.Rehearsal, want ...string) {
	t.Helper()

	entries, err := os.ReadDir(filepath.Join(r.Stack.Workspace().WorkDir(), "talos"))
	require.NoError(t, err)

	var found []string

	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), e.Name())
		require.NotZero(t, info.Size(), e.Name())

		found = append(found, e.Name())
	}

	slices.Sort(found)
	require.Equal(t, append([]string{".gitignore", files.Marker}, want...), found)
}
