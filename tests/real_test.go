package tests

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/rehearsal"
)

// TestRealProxmox runs the life of a stack on a real Proxmox VE that the environment names. Nothing is rewritten but
// the endpoint and the token.
func TestRealProxmox(t *testing.T) {
	access := proxmoxapi.Access{
		Endpoint:    os.Getenv("TALOS_PROXMOX_TEST_ENDPOINT"),
		TokenID:     os.Getenv("TALOS_PROXMOX_TEST_TOKEN_ID"),
		TokenSecret: os.Getenv("TALOS_PROXMOX_TEST_TOKEN_SECRET"),
	}
	file := os.Getenv("TALOS_PROXMOX_TEST_STACK")

	if access.Endpoint == "" || access.TokenID == "" || access.TokenSecret == "" || file == "" {
		t.Skip("SKIPPED: no real Proxmox VE. Set TALOS_PROXMOX_TEST_STACK, _ENDPOINT, _TOKEN_ID and _TOKEN_SECRET to run " +
			"against one.")
	}

	access.Insecure, _ = strconv.ParseBool(os.Getenv("TALOS_PROXMOX_TEST_INSECURE")) // absent is false

	e, err := theEngine()
	require.NoError(t, err)

	if !filepath.IsAbs(file) {
		file = filepath.Join(root, file)
	}

	liveOn(t, e, file, access)
}

// TestRealProxmoxOnTheLab keeps the test above from rotting where there is no Proxmox VE: to it, the lab is one.
func TestRealProxmoxOnTheLab(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	file := filepath.Join(t.TempDir(), "Pulumi.real.yaml")
	require.NoError(t, r.WriteStackFile(file))

	c := r.Lab.Credentials()
	liveOn(t, r.Engine(), file, proxmoxapi.Access{
		Endpoint: r.Lab.Endpoint(), Insecure: true, TokenID: c.TokenID,
		TokenSecret: c.TokenSecret,
	})
}

// liveOn deploys a stack, deploys it again, grows and shrinks it, reads it with other clients, and destroys it.
func liveOn(t *testing.T, e *engine.Engine, file string, access proxmoxapi.Access) {
	t.Helper()

	proxmox, err := proxmoxapi.New(access)
	require.NoError(t, err)

	before := machines(t, proxmox)

	// State outlives a test that could not clean up after itself: nothing else knows all that it made.
	dir, err := os.MkdirTemp("", "talos-proxmox-real-")
	require.NoError(t, err)
	t.Log("state is in", dir)

	keep := false

	t.Cleanup(func() {
		if !keep {
			assert.NoError(t, os.RemoveAll(dir))
		}
	})

	backend, err := e.NewBackend(dir)
	require.NoError(t, err)

	project := filepath.Join(dir, "project")
	require.NoError(t, os.Mkdir(project, 0o700))

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(project, "Pulumi.real.yaml"), text, 0o600))

	stack, err := backend.InlineStack(t.Context(), config.Project, "real", stacks.ProgramIn(project), nil,
		auto.WorkDir(project))
	require.NoError(t, err)
	set(t, stack, "proxmox.endpoint", access.Endpoint)
	set(t, stack, "proxmox.tokenId", access.TokenID)
	set(t, stack, "proxmox.insecure", strconv.FormatBool(access.Insecure))
	require.NoError(t, stack.SetConfig(t.Context(), config.Project+":proxmoxTokenSecret",
		auto.ConfigValue{Value: access.TokenSecret, Secret: true}))

	t.Cleanup(func() {
		if !t.Failed() {
			return
		}

		if err := rehearsal.Destroy(context.WithoutCancel(t.Context()), stack); err != nil {
			keep = true

			t.Logf("the stack is still there, and its state in %s: %v", dir, err)
		}
	})

	contract := contractOf(t, upResult(t, stack))
	deployed := machines(t, proxmox)
	assert.Len(t, deployed, len(before)+len(contract.NodeVMIDMap))

	requireOnlySame(t, upChanges(t, stack))
	requireNoChange(t, stack)

	workers := len(contract.BootstrapNodes.Workers)
	set(t, stack, "pools.worker.count", strconv.Itoa(workers+1))

	grown := upResult(t, stack)
	assert.Len(t, contractOf(t, grown).BootstrapNodes.Workers, workers+1)
	readCluster(t, grown, len(contract.NodeVMIDMap)+1)

	set(t, stack, "pools.worker.count", strconv.Itoa(workers))
	assert.Equal(t, contract, contractOf(t, upResult(t, stack)))
	assert.Equal(t, deployed, machines(t, proxmox))

	destroy(t, stack)
	assert.Equal(t, before, machines(t, proxmox))
}

// machines are the VMs as the files of the cluster have them: names and power come later, with the next broadcast.
func machines(t *testing.T, proxmox *proxmoxapi.Client) []proxmoxapi.VM {
	t.Helper()

	vms, err := proxmox.VMs(t.Context())
	require.NoError(t, err)

	for i, v := range vms {
		vms[i] = proxmoxapi.VM{ID: v.ID, Host: v.Host, Tags: v.Tags, Pool: v.Pool}
	}

	slices.SortFunc(vms, func(a, b proxmoxapi.VM) int { return cmp.Compare(a.ID, b.ID) })

	return vms
}

func contractOf(t *testing.T, result auto.UpResult) *contract.Contract {
	t.Helper()

	contract, err := contract.Decode(result.Outputs[contract.OutputContract].Value)
	require.NoError(t, err)

	return contract
}

// readCluster waits until Kubernetes counts all nodes as ready, and asks those of Talos for their version. With bootstrap:
// external there is nothing to ask.
func readCluster(t *testing.T, result auto.UpResult, nodes int) {
	t.Helper()

	if _, there := result.Outputs["kubeconfig"]; !there {
		return
	}

	kube := kubernetesClient(t, result.Outputs)

	require.Eventually(t, func() bool {
		list, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})

		return err == nil && len(list.Items) == nodes && !slices.ContainsFunc(list.Items, unready)
	}, 10*wait, wait/60)

	if _, there := result.Outputs["talosconfig"]; !there {
		return // K3s
	}

	talos, addresses := talosClient(t, result.Outputs)

	require.Eventually(t, func() bool {
		reply, err := talos.Version(client.WithNodes(t.Context(), addresses...))

		return err == nil && len(reply.GetMessages()) == nodes
	}, 10*wait, wait/60)
}

func unready(n corev1.Node) bool {
	return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
