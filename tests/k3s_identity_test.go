package tests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/ops/importcmd"
	"talos-proxmox/tests/rehearsal"
)

// TestK3sIdentity brings a cluster up in networks of its own, which cannot change, loses its state and brings it back
// with what a server's files tell. No machine notices.
func TestK3sIdentity(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: a@pve!b, hosts: [{ name: pve }], ssh: { username: root } }
  talos-proxmox:cluster: { name: own, kind: k3s, ha: true, versions: { k3s: v1.34.2+k3s1 } }
  talos-proxmox:image: { template: { control: ubuntu-24.04, worker: ubuntu-24.04 } }
  talos-proxmox:network: { addressing: agent, cidr: 10.0.0.0/16 }
  talos-proxmox:k3s: { clusterCIDR: 10.100.0.0/16, serviceCIDR: 10.101.0.0/16, generateSSHKey: true }
  talos-proxmox:pools:
    server: { role: controlplane, count: 3 }
    agent: { role: worker, count: 1 }
`))

	result := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	api := kubernetesClient(t, result.Outputs)
	nodes := []string{"own-agent-1", "own-server-1", "own-server-2", "own-server-3"}
	assert.Equal(t, nodes, readyNodes(t, api))

	service, err := api.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "10.101.0.1", service.Spec.ClusterIP)
	requireSettled(t, r.Stack)

	set(t, r.Stack, "k3s.serviceCIDR", "10.102.0.0/16")
	out := newOutput(t)
	_, err = r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(), "k3s.serviceCIDR: must stay as it was when the cluster was created: its nodes and "+
		"services have addresses from this network (given: 10.102.0.0/16); set 10.101.0.0/16; a different network needs a "+
		"new cluster")
	set(t, r.Stack, "k3s.serviceCIDR", "10.101.0.0/16")

	resources, deployed := identities(t, r.Stack), r.Lab.World().Snapshot()
	kept := archived(t, r.Ubuntu.ServerFiles("own-server-2"))

	lose(t, r)

	_, _, err = tryAdopt(t, r, importcmd.Options{})
	require.ErrorContains(t, err, "own-identity is lost with the state")
	require.ErrorContains(t, err, "read it from a server and set k3sIdentity")

	identify(t, r, kept)

	files, said := adoptable(t, r, importcmd.Options{})
	assert.Regexp(t, `(?m)^again +own-identity +it is made of k3sIdentity$`, said)
	assert.Regexp(t, `(?m)^found +own-server-1-user-data +local:snippets/own-server-1.yaml on host pve$`, said)
	importFile(t, r, files.Import)

	requireUntouched(t, r)
	assert.Equal(t, resources, identities(t, r.Stack))
	assert.Equal(t, deployed, r.Lab.World().Snapshot())
	requireNoChange(t, r.Stack)
	assert.Equal(t, nodes, readyNodes(t, kubernetesClient(t, upResult(t, r.Stack).Outputs)))

	// The state has it now. Another would be no cluster's.
	require.NoError(t, r.Stack.RemoveConfig(t.Context(), config.Project+":k3sIdentity"))
	requireNoChange(t, r.Stack)

	// A node that comes is let in.
	set(t, r.Stack, "pools.agent.count", "2")
	assert.Len(t, readyNodes(t, kubernetesClient(t, upResult(t, r.Stack).Outputs)), len(nodes)+1)

	destroy(t, r.Stack)
}

func identify(t *testing.T, r *rehearsal.Rehearsal, text string) {
	t.Helper()

	require.NoError(t, r.Stack.SetConfig(t.Context(), config.Project+":k3sIdentity",
		auto.ConfigValue{Value: text, Secret: true}))
}

// archived is what "tar -czh | base64" makes of the files that the documents name.
func archived(t *testing.T, files map[string]string) string {
	t.Helper()

	var b bytes.Buffer

	compressed := gzip.NewWriter(&b)
	archive := tar.NewWriter(compressed)

	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "tls/") && name != "token" && name != "agent-token" {
			continue
		}

		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name]))}))

		_, err := archive.Write([]byte(files[name]))
		require.NoError(t, err)
	}

	require.NoError(t, archive.Close())
	require.NoError(t, compressed.Close())

	return base64.StdEncoding.EncodeToString(b.Bytes())
}
