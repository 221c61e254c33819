package tests

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
)

// TestK3sCertificates lets the certificates of a cluster of K3s expire: the administrator's, which any update renews,
// and those of nodes, which K3s renews when it starts. Then the clock of a server is set back.
func TestK3sCertificates(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s",
		"  talos-proxmox:network:", "  talos-proxmox:lifecycle: { settleTimeout: 2s, nodeTimeout: 20s }\n  talos-proxmox:network:",
		"role: worker, count: 1", "role: worker, count: 2"))
	outputs := upResult(t, r.Stack).Outputs

	t.Run("the administrator's", func(t *testing.T) {
		old := letAdministratorExpire(t, r, outputs)

		// Not even what a preview asks of the nodes needs the old one.
		set(t, r.Stack, "pools.agent.count", "1")

		started, out := time.Now(), newOutput(t)
		preview, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
		require.NoError(t, err)
		assert.Equal(t, 1, preview.ChangeSummary[apitype.OpReplace])
		assert.NotContains(t, out.String(), "could not determine")
		assert.NotContains(t, out.String(), "are not known")
		assert.NotContains(t, out.String(), "not available")
		assert.Less(t, time.Since(started), time.Minute)

		outputs = upResult(t, r.Stack).Outputs
		assert.NotEqual(t, old, outputs[contract.OutputKubeconfig].Value)
		assert.Equal(t, []string{"edge-agent-1", "edge-server-1"}, readyNodes(t, kubernetesClient(t, outputs)))
		requireNoChange(t, r.Stack)
	})

	api := kubernetesClient(t, outputs)

	t.Run("a server's", func(t *testing.T) {
		require.NoError(t, r.Ubuntu.ExpireCertificates("edge-server-1"))

		const expired = `its certificate has expired at \S+: run '([^']+)' on it, which renews it, then '(pulumi up)' again; ` +
			`if this machine's clock is wrong \('date -u' shows it\), correct it instead`

		// An update that has nothing to do with it only says so.
		assert.Regexp(t, "warning: could not determine the health of the nodes: .*"+expired, upResult(t,
			r.Stack).StdOut)

		before := r.Lab.World().Snapshot()
		set(t, r.Stack, "pools.agent.memoryMiB", "3072")
		said := failUp(t, r.Stack)
		require.Regexp(t, expired, said)
		assert.Equal(t, before, r.Lab.World().Snapshot())

		require.NoError(t, r.Ubuntu.Run("edge-server-1", regexp.MustCompile(expired).FindStringSubmatch(said)[1]))
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
	})

	t.Run("an agent's", func(t *testing.T) {
		require.NoError(t, r.Ubuntu.ExpireCertificates("edge-agent-1"))
		assert.Equal(t, map[string]any{"edge-agent-1": "not ready", "edge-server-1": "ready"}, healthOf(upResult(t, r.Stack).Outputs))

		require.NoError(t, r.Ubuntu.Run("edge-agent-1", "sudo systemctl restart k3s-agent"))
		assert.Equal(t, map[string]any{"edge-agent-1": "ready", "edge-server-1": "ready"}, healthOf(upResult(t, r.Stack).Outputs))
	})

	t.Run("an agent's clock that is behind", func(t *testing.T) {
		r.Ubuntu.SetClockBehind("edge-agent-2", true)
		set(t, r.Stack, "lifecycle.readyTimeout", "10s")
		set(t, r.Stack, "pools.agent.count", "2")

		said := failUp(t, r.Stack)
		assert.Contains(t, said, "certificate has expired or is not yet valid")
		assert.Contains(t, said, "its clock or that of its servers is wrong, or the certificates of the servers have expired")

		r.Ubuntu.SetClockBehind("edge-agent-2", false)
		unset(t, r.Stack, "lifecycle.readyTimeout")
		up(t, r.Stack)
		set(t, r.Stack, "pools.agent.count", "1")
		up(t, r.Stack)
	})

	t.Run("a server's clock that is behind", func(t *testing.T) {
		r.Ubuntu.SetClockBehind("edge-server-1", true)
		set(t, r.Stack, "pools.agent.memoryMiB", "4096")
		assert.Regexp(t, `Unauthorized: it does not accept the administrator's certificate, which is valid from \S+ to \S+; `+
			`correct its clock if it is wrong \('date -u' shows it\), then run 'pulumi up' again`, failUp(t, r.Stack))

		r.Ubuntu.SetClockBehind("edge-server-1", false)
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
		assert.Equal(t, []string{"edge-agent-1", "edge-server-1"}, readyNodes(t, api))
	})

	destroy(t, r.Stack)
}

// letAdministratorExpire makes the administrator's certificate in the state one of more than a year ago, and returns
// the kubeconfig with it.
func letAdministratorExpire(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) string {
	t.Helper()

	files := r.Ubuntu.ServerFiles("edge-server-1")
	kubeconfig := outputs[contract.OutputKubeconfig].Value.(string)

	now, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	require.NoError(t, err)

	encoded := base64.StdEncoding.EncodeToString
	old, err := base64.StdEncoding.DecodeString(aged(t, encoded(now.CertData), []byte(files["tls/client-ca.crt"]),
		[]byte(files["tls/client-ca.key"]), -time.Hour))
	require.NoError(t, err)

	// It stands alone, as a text within texts, and in a kubeconfig.
	pairs := []string{encoded(now.CertData), encoded(old)}

	for from, to, depth := string(now.CertData), string(old), 0; depth < 4; depth++ {
		from, to = quoted(t, from), quoted(t, to)
		pairs = append(pairs, from, to)
	}

	state := cli(t, r, "stack", "export", "--show-secrets")
	made := k3sconfig.Term(time.Now())
	require.Contains(t, state, `"`+made+`"`)

	pairs = append(pairs, `"`+made+`"`, `"`+k3sconfig.Term(time.Now().AddDate(-1, 0, 0))+`"`)
	state = strings.NewReplacer(pairs...).Replace(state)

	var deployment apitype.UntypedDeployment

	require.NoError(t, json.Unmarshal([]byte(state), &deployment))
	require.NoError(t, r.Stack.Import(t.Context(), deployment))

	aged, err := r.Stack.Outputs(t.Context())
	require.NoError(t, err)

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(aged[contract.OutputKubeconfig].Value.(string)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(old, config.CertData))

	block, _ := pem.Decode(config.CertData)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.True(t, certificate.NotAfter.Before(time.Now()))

	return aged[contract.OutputKubeconfig].Value.(string)
}

// quoted is a text within a text of JSON.
func quoted(t *testing.T, text string) string {
	t.Helper()

	b, err := json.Marshal(text)
	require.NoError(t, err)

	return strings.Trim(string(b), `"`)
}
