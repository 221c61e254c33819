package tests

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
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
	"golang.org/x/crypto/ssh"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/ubuntu"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// TestK3s brings the example up, runs a workload in it, and takes it through its life: more agents and fewer, and its
// end.
func TestK3s(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s"), func(
		o *rehearsal.Options,
	) {
		o.Releases = []string{"v1.34.2+k3s1", "v1.34.3+k3s1"}
		// The provider does not wait for the deletion of a file that another of the same name follows.
		o.Latencies.Free = time.Second
	})

	// Agents join by the name of the API. No name is resolved here, but an address looks like one.
	set(t, r.Stack, "cluster.endpoint.mode", "dns")
	set(t, r.Stack, "cluster.endpoint.host", addressOf(r, "edge-server-1"))

	// Ubuntu's archive does not answer when the machines ask it first.
	for _, node := range []string{"edge-server-1", "edge-agent-1"} {
		r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Guest, Subject: node, Call: regexp.MustCompile("^GET http://archive.ubuntu.com/ubuntu$"),
			Kind: journal.Refuse, Message: "503 Service Unavailable",
		})
	}

	result := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Len(t, calls(r, "/ubuntu/pool/qemu-guest-agent"), 2, "both have got the guest agent later")

	for _, n := range r.Plan.Nodes() {
		assert.Equal(t, fs.FileMode(0o600), r.Lab.World().Mode(n.Host, "/var/lib/vz/snippets/"+n.Name+".yaml"),
			"user data have secrets")
	}

	cluster := contractOf(t, result)
	assert.Equal(t, "k3s", cluster.Kind)
	assert.Equal(t, contract.Versions{K3s: "v1.34.2+k3s1", Kubernetes: "v1.34.2"}, cluster.Versions)
	assert.Equal(t, []string{addressOf(r, "edge-server-1")}, cluster.ControlPlaneEndpoints)

	api := kubernetesClient(t, result.Outputs)
	assert.Equal(t, []string{"edge-agent-1", "edge-server-1"}, readyNodes(t, api))
	assert.Equal(t, []string{"coredns", "local-path-provisioner", "metrics-server"}, r.Ubuntu.Deployed("edge-server-1"),
		"without what is disabled")

	runWorkload(t, api)

	status := result.Outputs[contract.OutputK3s].Value.(map[string]any)
	assert.Equal(t, "https://"+addressOf(r, "edge-server-1")+":6443", status["api"])
	assert.Equal(t, "ssh ubuntu@"+addressOf(r, "edge-agent-1"),
		status["nodes"].(map[string]any)["edge-agent-1"].(map[string]any)["ssh"])
	assert.Equal(t, map[string]any{"edge-agent-1": "ready", "edge-server-1": "ready"}, healthOf(result.Outputs))

	_, err := ssh.ParsePrivateKey([]byte(result.Outputs[contract.OutputSSHPrivateKey].Value.(string)))
	require.NoError(t, err)
	assert.True(t, result.Outputs[contract.OutputSSHPrivateKey].Secret)
	assert.True(t, result.Outputs[contract.OutputKubeconfig].Secret)

	requireSettled(t, r.Stack)

	setUnschedulable(t, api, "edge-agent-1", true)
	assert.Equal(t, map[string]any{"edge-agent-1": "cordoned", "edge-server-1": "ready"}, healthOf(upResult(t, r.Stack).Outputs))
	setUnschedulable(t, api, "edge-agent-1", false)

	requireNothingInPlain(t, r, result.Outputs[contract.OutputSSHPrivateKey].Value.(string))

	kubeconfig := result.Outputs[contract.OutputKubeconfig].Value

	// The servers were given another token: a new node is not let in, until they have the old one again.
	token := r.Ubuntu.ReplaceAgentToken("another")
	set(t, r.Stack, "lifecycle.readyTimeout", "5s")
	set(t, r.Stack, "pools.agent.count", "3")
	said := failUp(t, r.Stack)
	assert.Contains(t, said, "edge-agent-2 has not joined: gave up after 5s, waiting for edge-agent-2 to join Kubernetes")
	assert.Contains(t, said, "/v1-k3s/client-kubelet.crt: 401 Unauthorized")
	assert.Contains(t, said, "its servers reject its token: they were given a different one")

	r.Ubuntu.ReplaceAgentToken(token)
	unset(t, r.Stack, "lifecycle.readyTimeout")
	result = upResult(t, r.Stack)
	assert.Equal(t, []string{"edge-agent-1", "edge-agent-2", "edge-agent-3", "edge-server-1"}, readyNodes(t, api))
	assert.Equal(t, kubeconfig, result.Outputs[contract.OutputKubeconfig].Value, "the same administrator")

	set(t, r.Stack, "pools.agent.count", "1")
	up(t, r.Stack)
	assert.Equal(t, []string{"edge-agent-1", "edge-server-1"}, readyNodes(t, api),
		"Kubernetes has forgotten those that went")

	// Who comes back by a name is known again.
	set(t, r.Stack, "pools.agent.count", "2")
	up(t, r.Stack)
	assert.Equal(t, []string{"edge-agent-1", "edge-agent-2", "edge-server-1"}, readyNodes(t, api))
	requireNoChange(t, r.Stack)

	// A version that is not there leaves what runs, and the next goes on.
	set(t, r.Stack, "cluster.versions.k3s", "v1.34.9+k3s1")
	said = failUp(t, r.Stack)
	assert.Contains(t, said, "edge-server-1 is not upgraded: there is no release v1.34.9+k3s1 of K3s")
	assert.Equal(t, []string{"edge-agent-1 v1.34.2+k3s1", "edge-agent-2 v1.34.2+k3s1", "edge-server-1 v1.34.2+k3s1"},
		versionsOf(t, api))

	made := []any{vmConfig(t, r, "edge-server-1")["smbios1"], vmConfig(t, r, "edge-agent-1")["smbios1"]}
	before := vmConfig(t, r, "edge-agent-2")["smbios1"]

	// One agent is recreated meanwhile, and what reaches none of the others is said.
	set(t, r.Stack, "cluster.versions.k3s", "v1.34.3+k3s1")
	set(t, r.Stack, "lifecycle.replace[0]", "edge-agent-2")
	set(t, r.Stack, "k3s.disable[1]", "servicelb")
	result = upResult(t, r.Stack)
	assert.Contains(t, result.StdOut,
		"the user data of edge-server-1 differs from the configuration: disable. ")
	assert.NotContains(t, result.StdOut, "the user data of edge-agent-1")
	assert.Equal(t, []string{"edge-agent-1 v1.34.3+k3s1", "edge-agent-2 v1.34.3+k3s1", "edge-server-1 v1.34.3+k3s1"},
		versionsOf(t, api))
	assert.Equal(t, made, []any{vmConfig(t, r, "edge-server-1")["smbios1"], vmConfig(t, r, "edge-agent-1")["smbios1"]},
		"in place")
	assert.NotEqual(t, before, vmConfig(t, r, "edge-agent-2")["smbios1"], "recreated")
	assert.Equal(t, "v1.34.3", contractOf(t, result).Versions.Kubernetes)
	requireNoChange(t, r.Stack)

	// The list may stay: what changes later leaves the user data of what was recreated, or cloud-init would set it up
	// again at its next start.
	kept := r.Lab.World().Snapshot()
	set(t, r.Stack, "k3s.sshKeys[0]", anyKey)
	assert.Contains(t, upResult(t, r.Stack).StdOut, "the user data of edge-agent-2 differs from the configuration: ")
	assert.Equal(t, kept, r.Lab.World().Snapshot())

	// The agent was recreated, and the destroy releases no other.
	unset(t, r.Stack, "lifecycle.replace")

	destroy(t, r.Stack)
	// The provider does not wait for its last deletions either.
	assert.Eventually(t, func() bool { return r.Leftovers() == "" }, wait, time.Second/10)
}

// healthOf are the nodes of K3s by name, with their health as the outputs have it.
func healthOf(outputs auto.OutputMap) map[string]any {
	found := map[string]any{}
	for name, n := range outputs[contract.OutputK3s].Value.(map[string]any)["nodes"].(map[string]any) {
		found[name] = n.(map[string]any)["health"]
	}

	return found
}

// setUnschedulable cordons a node, or uncordons it, as kubectl does.
func setUnschedulable(t *testing.T, api *kubernetes.Clientset, node string, cordoned bool) {
	t.Helper()

	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned)
	_, err := api.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// anyKey is a public key that no host of the lab has.
const anyKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtMwlzQ0KJyTzJuLKkSXWbQbKUeVeyXeRaNPcUkTpTu"

func installChecksum(version string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(ubuntu.InstallScript(version))))
}

// TestK3sManifests: Kubernetes gets the manifests of the operator and of addons, and the secret ones, also when they
// change; what others have set stays theirs.
func TestK3sManifests(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s"), onRealKubernetes)

	motd := func(text string) {
		set(t, r.Stack, "cluster.manifests[0]",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: motd}\ndata: {text: "+text+"}\n")
	}

	motd("hello")

	for key, secret := range map[string]string{
		"secretManifests": "apiVersion: v1\nkind: Secret\nmetadata: {name: deploy-key, namespace: default}\n" +
			"stringData: {key: hunter2}\n",
		"registryLogins": "registry.lan: {username: pull, password: hunter3}",
		"gitOpsKey":      "hunter4",
	} {
		require.NoError(t, r.Stack.SetConfig(t.Context(), config.Project+":"+key,
			auto.ConfigValue{Value: secret, Secret: true}))
	}

	set(t, r.Stack, "cluster.gitOps.repository", "https://git.example.com/platform.git")
	assert.Contains(t, failPreview(t, r.Stack), "cluster.gitOps: needs one of the addons flux and argo-cd")
	set(t, r.Stack, "cluster.addons[0]", "flux")

	result := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	api := kubernetesClient(t, result.Outputs)
	value := func() string {
		found, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "motd", metav1.GetOptions{})
		require.NoError(t, err)

		return found.Data["text"]
	}

	assert.Equal(t, "hello", value())

	for _, secret := range []struct{ namespace, name, key, want string }{
		{"default", "deploy-key", "key", "hunter2"}, {"flux-system", "flux-system", "password", "hunter4"},
	} {
		found, err := api.CoreV1().Secrets(secret.namespace).Get(t.Context(), secret.name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, secret.want, string(found.Data[secret.key])+found.StringData[secret.key])
	}

	jobs, err := api.BatchV1().Jobs("kube-system").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, jobs.Items, 1)
	assert.Contains(t, jobs.Items[0].Name, "install-flux-")

	requireNoChange(t, r.Stack)
	motd("bye")
	assert.Contains(t, previewOf(t, r.Stack), "edge-manifests update")
	up(t, r.Stack)
	assert.Equal(t, "bye", value())

	// What is gone from the cluster comes back on request.
	require.NoError(t, api.CoreV1().ConfigMaps("default").Delete(t.Context(), "motd", metav1.DeleteOptions{}))
	requireNoChange(t, r.Stack)

	kept, err := os.ReadFile(filepath.Join(r.Backend.Dir(), "state", ".pulumi", "stacks", config.Project, r.Stack.Name()+".json"))
	require.NoError(t, err)

	urn := regexp.MustCompile(`urn:pulumi:[^"]*Stash::edge-manifests`).FindString(string(kept))
	_, err = r.Stack.Up(t.Context(), optup.Replace([]string{urn}))
	require.NoError(t, err)
	assert.Equal(t, "bye", value())

	assert.Contains(t, string(kept), "edge-server-1-user-data")

	for _, secret := range []string{"hunter2", "hunter3", "hunter4"} {
		assert.NotContains(t, string(kept), secret)
	}

	others, err := api.CoreV1().ConfigMaps("default").Apply(t.Context(),
		applycorev1.ConfigMap("motd", "default").WithData(map[string]string{"text": "theirs"}),
		metav1.ApplyOptions{FieldManager: "helm", Force: true})
	require.NoError(t, err)
	require.Equal(t, "theirs", others.Data["text"])

	motd("ours")
	assert.Contains(t, failUp(t, r.Stack), "the manifests of the cluster were not applied: ConfigMap default/motd: ")
	assert.Equal(t, "theirs", value())

	set(t, r.Stack, "cluster.manifests[0]", "https://example.com/flux.yaml")
	assert.Contains(t, failPreview(t, r.Stack), "cluster.manifests[0]: must be a file or text: K3s nodes fetch no manifests")
}

// TestK3sGPU: an agent has the GPU of its host, by a resource mapping of its own, and the contract names it.
func TestK3sGPU(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s", "worker: ubuntu-24.04 }", "worker: ubuntu-24.04, gpuWorker: ubuntu-24.04 }",
		"    agent:", "    gpu: { role: worker, addresses: 192.168.20.51-59, gpus: { \"1\": { bdf: \"0000:01:00.0\" } } }\n    agent:"))

	outputs := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	const gpu = "edge-gpu-1"

	assert.Contains(t, vmConfig(t, r, gpu)["hostpci0"], "mapping="+gpu+",pcie=1,rombar=1")
	require.Len(t, contractOf(t, outputs).BootstrapNodes.GPUWorkers, 1)
	assert.Equal(t, "0000:01:00.0", *contractOf(t, outputs).BootstrapNodes.GPUWorkers[0].GPU)
	requireNoChange(t, r.Stack)
}

// TestK3sToNewest takes a cluster of K3s with three servers from 1.34 to the newest Kubernetes, one minor version at a
// time, on the released etcd and API server: a server at a time, then the agents, killed half-way once.
func TestK3sToNewest(t *testing.T) {
	t.Parallel()

	r, command := rehearseKillable(t, stackFile(t, strings.Replace(homeServers, "v1.33.6+k3s1", "v1.34.2+k3s1", 1)),
		onRealKubernetes)
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	nodes := []string{"home-agent-1", "home-server-1", "home-server-2", "home-server-3"}

	for _, version := range []string{"v1.35.0+k3s1", "v1.36.1+k3s1", "v1.37.0+k3s1"} {
		set(t, r.Stack, "cluster.versions.k3s", version)

		if version == "v1.36.1+k3s1" {
			r.Lab.Journal().Plant(journal.Fault{
				Face: journal.Proxmox, Call: regexp.MustCompile(`/agent/file-write$`), Kind: journal.Interfere,
				Before: func(journal.Entry) { command.Kill() },
			})

			_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(newOutput(t)))
			require.Error(t, err)
			require.True(t, command.Killed(), "it failed before it was killed: %v", err)
			require.NoError(t, r.WaitReady(t.Context(), wait))
			assert.Contains(t, versionsOf(t, api), "home-agent-1 v1.35.0+k3s1", "servers go first")
			unlock(t, r)
		}

		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		var want []string
		for _, name := range nodes {
			want = append(want, name+" "+version)
		}

		assert.Equal(t, want, versionsOf(t, api))
		assert.Equal(t, nodes, readyNodes(t, api))
		requireNoChange(t, r.Stack)
	}
}

// TestK3sHA brings three servers up on two hosts from a cloud image that the hosts download, with addresses that only
// the guest agents know, and a token of the operator's. Proxmox VE is 8.4, where SSH works for users other than root.
func TestK3sHA(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: a@pve!b, hosts: [{ name: pve1 }, { name: pve2 }], ssh: { username: pulumi, addresses: { pve1: 10.0.0.2, pve2: 10.0.0.3 }, hostKeys: { pve1: `+anyKey+`, pve2: `+anyKey+` } } }
  talos-proxmox:cluster: { name: ha, kind: k3s, ha: true, versions: { k3s: v1.33.6+k3s1 } }
  talos-proxmox:image:
    source: cloudImage
    cloudImage:
      url: https://cloud-images.ubuntu.com/releases/noble/release-20251113/ubuntu-24.04-server-cloudimg-amd64.img
      checksum: sha256:`+strings.Repeat("0", 64)+`
  talos-proxmox:k3s: { installChecksum: "`+installChecksum("v1.33.6+k3s1")+`" }
  talos-proxmox:network: { addressing: agent, cidr: 10.0.0.0/16 }
  talos-proxmox:lifecycle: { keepImages: false, upgrade: { canary: true, maxUnavailable: 2 } }
  talos-proxmox:pools:
    server: { role: controlplane, count: 3 }
    agent: { role: worker, count: 2, labels: { tier: db }, taints: { dedicated: "db:NoSchedule" } }
`), func(o *rehearsal.Options) { o.Proxmox = world.Version8 })

	require.NoError(t, r.Backend.KeepLogs())

	const given = "a-token/of+the=operators"

	token := func(value string) {
		require.NoError(t, r.Stack.SetConfig(t.Context(), config.Project+":k3sToken",
			auto.ConfigValue{Value: value, Secret: true}))
	}
	token(given)

	set(t, r.Stack, "proxmox.ssh.hostKeys.pve2", anyKey)
	assert.Regexp(t, `proxmox\.ssh\.hostKeys\.pve2: is not the key that 127\.\S+ shows: SHA256:\S+ \(given: SHA256:`,
		failUp(t, r.Stack))
	set(t, r.Stack, "proxmox.ssh.hostKeys.pve2", r.Lab.SSHHostKey())

	result := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	api := kubernetesClient(t, result.Outputs)
	assert.Equal(t, []string{"ha-agent-1", "ha-agent-2", "ha-server-1", "ha-server-2", "ha-server-3"}, readyNodes(t, api))

	agent, err := api.CoreV1().Nodes().Get(t.Context(), "ha-agent-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "db", agent.Labels["tier"])
	assert.Equal(t, []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}},
		agent.Spec.Taints)
	assert.Equal(t, "v1.33.6+k3s1", agent.Status.NodeInfo.KubeletVersion)

	assert.Len(t, r.Lab.World().Downloads(), 2, "one for each host")
	assert.Len(t, contractOf(t, result).ControlPlaneEndpoints, 3)

	requireNoChange(t, r.Stack)
	requireHidden(t, map[string]string{"the token": given},
		map[string]string{"the exported state": cli(t, r, "stack", "export")}, left(t, r))

	// A token that the servers do not know is refused before anything is made.
	token("another-one-of-the-operators")
	out := newOutput(t)
	_, err = r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(),
		"k3sToken: must stay as it was when the cluster was created: its servers accept no other token; "+
			"run 'pulumi config rm k3sToken': the state has the token; a different token needs a new cluster")
	assert.NotContains(t, out.String(), "another-one-of-the-operators")
	token(given)

	set(t, r.Stack, "cluster.versions.k3s", "v1.35.0+k3s1")
	out = newOutput(t)
	_, err = r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(),
		"K3s v1.33.6+k3s1 cannot become v1.35.0+k3s1 at once: upgrades go one minor version at a time; "+
			"go through the last v1.34, each in an update of its own, and then to v1.35.0+k3s1")

	set(t, r.Stack, "cluster.versions.k3s", "v1.34.2+k3s1")
	out = newOutput(t)
	_, err = r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	assert.Contains(t, out.String(),
		"ha-server-1: upgrade, for K3s v1.33.6+k3s1 becomes v1.34.2+k3s1; etcd meanwhile: 2 of 3, 2 needed")

	// User data configured the nodes once: what one has by hand is what its K3s starts with.
	const file, gate = "/etc/rancher/k3s/config.yaml", "kube-apiserver-arg: feature-gates=ElasticIndexedJob=true\n"

	server := r.Plan.ControlPlanes()[0]
	text, err := r.Lab.World().GuestFile(server.Host, server.VMID, file)
	require.NoError(t, err)
	require.NoError(t, r.Lab.World().WriteGuestFile(server.Host, server.VMID, file, text+gate))

	const refused = "its /etc/rancher/k3s/config.yaml has ElasticIndexedJob of kube-apiserver-arg: K3s does not start with " +
		"feature gates that Kubernetes v1.34.2 does not know; remove them there"

	assert.Contains(t, failPreview(t, r.Stack), "ha-server-1: "+refused)
	assert.Contains(t, failUp(t, r.Stack), "ha-server-1 is not upgraded: "+refused)
	require.NoError(t, r.Lab.World().WriteGuestFile(server.Host, server.VMID, file, text))

	assert.Contains(t, failUp(t, r.Stack), "ha-server-1 is not upgraded: https://raw.githubusercontent.com/k3s-io/k3s/"+
		"v1.34.2%2Bk3s1/install.sh does not have the checksum that k3s.installChecksum states: it was not run")
	set(t, r.Stack, "k3s.installChecksum", installChecksum("v1.34.2+k3s1"))

	begun := len(calls(r, "/agent/file-write"))

	up(t, r.Stack)
	assert.Equal(t, []string{
		"ha-agent-1 v1.34.2+k3s1", "ha-agent-2 v1.34.2+k3s1", "ha-server-1 v1.34.2+k3s1", "ha-server-2 v1.34.2+k3s1",
		"ha-server-3 v1.34.2+k3s1",
	}, versionsOf(t, api))

	// What went wrong before is forgotten, then the version is wanted; the servers one by one, then one
	// agent, and then the other.
	var told []string
	for _, call := range calls(r, "/agent/file-write")[begun:] {
		told = append(told, strings.Split(call, "/")[4])
	}

	require.Len(t, told, 10)
	assert.Equal(t, []string{"401", "401", "402", "402", "403", "403"}, told[:6])
	assert.Contains(t, [][]string{{"501", "501", "502", "502"}, {"502", "502", "501", "501"}}, told[6:])

	// Another server keeps etcd before one is upgraded, also the first time, which failed.
	kept := map[string]int{}

	for _, server := range []string{"ha-server-1", "ha-server-2", "ha-server-3"} {
		for path := range r.Ubuntu.ServerFiles(server) {
			if strings.HasPrefix(path, "db/snapshots/talos-proxmox-auto-"+server+"-") {
				kept[server]++
			}
		}
	}

	assert.Equal(t, map[string]int{"ha-server-1": 2, "ha-server-2": 2}, kept)
	requireNoChange(t, r.Stack)

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

// TestK3sGoesOn: what fails says so with the end of the machine's logs, and the next update goes on where it stood.
func TestK3sGoesOn(t *testing.T) {
	t.Parallel()

	brief := []string{
		"  talos-proxmox:network:",
		"  talos-proxmox:lifecycle: { readyTimeout: 4s, upgrade: { timeout: 4s } }\n  talos-proxmox:network:",
	}

	for name, c := range map[string]struct {
		options []func(*rehearsal.Options)
		change  []string
		before  func(t *testing.T, r *rehearsal.Rehearsal) (mend func())
		want    []string
		// correct is for what no update of these machines can mend: the cluster is recreated after it.
		correct func(t *testing.T, r *rehearsal.Rehearsal)
	}{
		"a release that is not there": {
			options: []func(*rehearsal.Options){func(o *rehearsal.Options) { o.Releases = []string{"v1.34.1+k3s1"} }},
			want: []string{
				"has not joined: there is no release v1.34.2+k3s1 of K3s: " +
					"https://raw.githubusercontent.com/k3s-io/k3s/v1.34.2%2Bk3s1/install.sh is not there. Correct cluster.versions.k3s",
				"/var/log/k3s-install.log ends with:", "/var/log/cloud-init-output.log ends with:",
			},
			correct: func(t *testing.T, r *rehearsal.Rehearsal) {
				t.Helper()
				set(t, r.Stack, "cluster.versions.k3s", "v1.34.1+k3s1")
			},
		},
		"another system": {
			change: []string{"control: ubuntu-24.04, worker: ubuntu-24.04", "control: debian-12, worker: ubuntu-24.04"},
			want: []string{"has not joined: unsupported operating system debian 12: a node must be Ubuntu 22.04 or 24.04. " +
				"Correct the template or the image"},
			correct: func(t *testing.T, r *rehearsal.Rehearsal) {
				t.Helper()

				set(t, r.Stack, "image.template.control", "ubuntu-24.04")
			},
		},
		"another binary than the checksum's": {
			change: []string{"    generateSSHKey:", "    checksum: sha256:" + strings.Repeat("0", 64) + "\n    generateSSHKey:"},
			want:   []string{"the k3s binary does not have the checksum that k3s.checksum states: nothing of it was run"},
			correct: func(t *testing.T, r *rehearsal.Rehearsal) {
				t.Helper()
				unset(t, r.Stack, "k3s.checksum")
			},
		},
		"a package that cannot be installed": {
			change: brief,
			before: packageFails,
			want:   []string{"the installation of the package nfs-common failed; it is tried again"},
		},

		"downloads that fail": {
			change: brief,
			before: func(_ *testing.T, r *rehearsal.Rehearsal) func() {
				r.Lab.Journal().Plant(journal.Fault{
					Face: journal.Guest, Call: regexp.MustCompile("install.sh$"), Times: 1000, Kind: journal.Refuse,
					Message: "Could not resolve host",
				})

				return r.Lab.Journal().Clear
			},
			want: []string{
				"edge-server-1 has not joined: gave up after 4s",
				"the download of https://raw.githubusercontent.com/k3s-io/k3s/v1.34.2%2Bk3s1/install.sh failed; it is tried again",
			},
		},
		"an address that is taken meanwhile": {
			change: brief,
			before: func(t *testing.T, r *rehearsal.Rehearsal) func() {
				var l net.Listener

				r.Lab.Journal().Plant(journal.Fault{
					Face: journal.Proxmox, Call: regexp.MustCompile("/clone$"), Times: 1, Kind: journal.Interfere,
					Before: func(journal.Entry) {
						var err error

						l, err = net.Listen("tcp", addressOf(r, "edge-server-1")+":6443")
						assert.NoError(t, err)
					},
				})

				return func() { _ = l.Close() }
			},
			want: []string{
				"edge-server-1 has not joined", "k3s does not come up; its log ends with:",
				"bind: address already in use",
			},
		},
		"a host that takes no file": {
			before: func(_ *testing.T, r *rehearsal.Rehearsal) func() {
				r.Lab.Journal().Plant(journal.Fault{
					Face: journal.SSH, Call: regexp.MustCompile("^tee .*edge-agent-1.yaml$"),
					Times: 1, Kind: journal.Refuse, Message: "tee: No space left on device",
				})

				return func() {}
			},
			want: []string{"No space left on device"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			light := func(o *rehearsal.Options) { o.Kubernetes = rehearsal.LightKubernetes } // within four seconds
			r := rehearse(t, example(t, "k3s", c.change...), append(c.options, light)...)
			mend := func() {}

			if c.before != nil {
				mend = c.before(t, r)
			}

			said := failUp(t, r.Stack)
			for _, want := range c.want {
				assert.Contains(t, said, want)
			}

			made := len(calls(r, "/clone"))

			mend()

			if c.correct != nil {
				destroy(t, r.Stack) // by lifecycle.teardown
				c.correct(t, r)
				unset(t, r.Stack, "lifecycle.teardown")
			}

			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))

			if c.correct == nil && made == 2 {
				assert.Len(t, calls(r, "/clone"), made, "no machine is made again")
			}

			destroy(t, r.Stack)
			assert.Empty(t, r.Leftovers())
		})
	}
}

// packageFails has the nodes want a package that Ubuntu's archive does not deliver until it is mended. cloud-init gets
// none, because the archive fails when it asks.
func packageFails(t *testing.T, r *rehearsal.Rehearsal) (mend func()) {
	t.Helper()

	set(t, r.Stack, "k3s.packages[0]", "nfs-common")

	for _, node := range []string{"edge-server-1", "edge-agent-1"} {
		r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Guest, Subject: node, Call: regexp.MustCompile("^GET http://archive.ubuntu.com/ubuntu$"),
			Kind: journal.Refuse, Message: "503 Service Unavailable",
		})
	}

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Guest, Call: regexp.MustCompile("/pool/nfs-common$"), Times: 1000, Kind: journal.Refuse,
		Message: "503 Service Unavailable",
	})

	return r.Lab.Journal().Clear
}

// readyNodes are the names of the nodes that are ready.
func readyNodes(t *testing.T, api kubernetes.Interface) []string {
	t.Helper()

	list, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var found []string

	for _, n := range list.Items {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			found = append(found, n.Name)
		} else {
			found = append(found, n.Name+" (not ready)")
		}
	}

	slices.Sort(found)

	return found
}

// versionsOf are the nodes with the versions of their kubelets.
func versionsOf(t *testing.T, api kubernetes.Interface) []string {
	t.Helper()

	list, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	var found []string

	for _, n := range list.Items {
		found = append(found, n.Name+" "+n.Status.NodeInfo.KubeletVersion)
	}

	slices.Sort(found)

	return found
}

// runWorkload has Kubernetes run something, and removes it.
func runWorkload(t *testing.T, api kubernetes.Interface) {
	t.Helper()

	labels := map[string]string{"app": "web"}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1.29"}}},
		},
	}}

	_, err := api.AppsV1().Deployments("default").Create(t.Context(), web, metav1.CreateOptions{})
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		now, err := api.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})

		return err == nil && now.Status.ReadyReplicas == 2
	}, 10*time.Second, 50*time.Millisecond)

	require.NoError(t, api.AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
}

// requireNothingInPlain holds that the state shows nothing of what is secret.
func requireNothingInPlain(t *testing.T, r *rehearsal.Rehearsal, secrets ...string) {
	t.Helper()

	text := cli(t, r, "stack", "export")
	for _, secret := range append(secrets, "PRIVATE KEY", "::server:", "#cloud-config") {
		assert.NotContains(t, text, secret)
	}
}
