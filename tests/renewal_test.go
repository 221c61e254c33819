package tests

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/components/talosapi"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
)

const day = 24 * time.Hour

// TestRenewal lets an administrator's credentials grow old. An update leaves them alone while they are good for more
// than a month; within it, one makes both new, and no machine notices.
func TestRenewal(t *testing.T) {
	t.Parallel()

	r := rehearse(t, devWith(t))
	young := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))

	requireValid(t, r, young, 360*day)
	deployed, applied := r.Lab.World().Snapshot(), len(calls(r, "/ApplyConfiguration"))

	t.Run("more than a month is left", func(t *testing.T) {
		old := grow(t, r, young, 40*day)
		requireNoChange(t, r.Stack)

		source, err := filepath.Abs(filepath.Join(root, "policy"))
		require.NoError(t, err)

		found, err := previewWith(t, r.Stack, source)
		require.NoError(t, err)

		for _, certificate := range []string{
			"k3s-dev-kubeconfig.kubeconfigRaw",
			"k3s-dev-secrets.clientConfiguration.clientCertificate",
		} {
			assert.Contains(t, strings.Join(found, "\n"),
				"certificate-validity: "+certificate+": must be valid for 45 more days (given: ends ")
		}

		requireOnlySame(t, upChanges(t, r.Stack))

		outputs, err := r.Stack.Outputs(t.Context())
		require.NoError(t, err)
		assert.Equal(t, old, credentialsOf(t, outputs))
	})

	t.Run("less than a month is left", func(t *testing.T) {
		old := grow(t, r, young, 20*day)

		preview, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
		assert.Zero(t, preview.ChangeSummary[apitype.OpReplace])
		assert.NotZero(t, preview.ChangeSummary[apitype.OpUpdate])

		outputs := upResult(t, r.Stack).Outputs
		renewed := credentialsOf(t, outputs)
		assert.NotEqual(t, old.kubernetes, renewed.kubernetes)
		assert.NotEqual(t, old.talos, renewed.talos)
		requireValid(t, r, outputs, 360*day)

		assert.Equal(t, deployed, r.Lab.World().Snapshot())
		assert.Len(t, calls(r, "/Bootstrap"), 1)
		assert.NotEmpty(t, calls(r, "/ApplyConfiguration")[applied:],
			"with the new credentials, and what the nodes have already")

		requireNoChange(t, r.Stack)
	})

	destroy(t, r.Stack)
}

// credentials are an administrator's client certificates as the provider holds them, PEM in base64.
type credentials struct{ kubernetes, talos string }

func credentialsOf(t *testing.T, outputs auto.OutputMap) credentials {
	t.Helper()

	kubernetes, err := clientcmd.RESTConfigFromKubeConfig([]byte(outputs[contract.OutputKubeconfig].Value.(string)))
	require.NoError(t, err)

	talos, err := clientconfig.FromString(outputs[contract.OutputTalosconfig].Value.(string))
	require.NoError(t, err)

	return credentials{base64.StdEncoding.EncodeToString(kubernetes.CertData), talos.Contexts[talos.Context].Crt}
}

// requireValid holds that both credentials are good for some time to come, that the outputs say until when, and that
// the cluster takes them.
func requireValid(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap, least time.Duration) {
	t.Helper()

	expiry := outputs[contract.OutputCredentialsExpiry].Value.(map[string]any)
	found := credentialsOf(t, outputs)

	for name, text := range map[string]string{
		contract.OutputKubeconfig:  found.kubernetes,
		contract.OutputTalosconfig: found.talos,
	} {
		end := certificateOf(t, text).NotAfter
		assert.Equal(t, end.UTC().Format(time.RFC3339), expiry[name], name)
		assert.Greater(t, time.Until(end), least, name)
	}

	nodes, err := kubernetesClient(t, outputs).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, nodes.Items, len(r.Plan.Nodes()))
	assert.Len(t, talosVersions(t, r, outputs), len(r.Plan.Nodes()))
}

// grow makes the credentials in the state as old as they are when so much is left, and returns them.
func grow(t *testing.T, r *rehearsal.Rehearsal, young auto.OutputMap, left time.Duration) credentials {
	t.Helper()

	bundle := secretsOf(t, r, young)
	state := cli(t, r, "stack", "export", "--show-secrets")

	outputs, err := r.Stack.Outputs(t.Context())
	require.NoError(t, err)

	now := credentialsOf(t, outputs)
	old := credentials{
		kubernetes: aged(t, now.kubernetes, bundle.Certs.K8s.Crt, bundle.Certs.K8s.Key, left),
		talos:      aged(t, now.talos, bundle.Certs.OS.Crt, bundle.Certs.OS.Key, left),
	}

	// They stand in many places, in base64 alone or within a file that is in base64 or not.
	state = strings.NewReplacer(now.kubernetes, old.kubernetes, now.talos, old.talos).Replace(state)

	var deployment apitype.UntypedDeployment

	require.NoError(t, json.Unmarshal([]byte(state), &deployment))
	require.NoError(t, r.Stack.Import(t.Context(), deployment))

	return old
}

// secretsOf are the secrets that the cluster runs with.
func secretsOf(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) *secrets.Bundle {
	t.Helper()

	config, err := clientconfig.FromString(outputs[contract.OutputTalosconfig].Value.(string))
	require.NoError(t, err)

	first, c := r.Plan.ControlPlanes()[0], config.Contexts[config.Context]

	bundle, err := talosapi.Secrets(t.Context(), []talosapi.Target{{Name: first.Name, Address: addressOf(r, first.Name)}},
		talosapi.Credentials{CA: c.CA, Certificate: c.Crt, Key: c.Key}, nil)
	require.NoError(t, err)

	return bundle
}

// aged is a certificate issued again for the same key, with another end.
func aged(t *testing.T, text string, caCert, caKey []byte, left time.Duration) string {
	t.Helper()

	authority, err := tls.X509KeyPair(caCert, standardKey(caKey))
	require.NoError(t, err)

	c := certificateOf(t, text)
	c.NotBefore, c.NotAfter = time.Now().Add(-day), time.Now().Add(left)

	der, err := x509.CreateCertificate(rand.Reader, c, authority.Leaf, c.PublicKey, authority.PrivateKey)
	require.NoError(t, err)

	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// standardKey is a key of Talos' under the name that everybody else has for its form.
func standardKey(key []byte) []byte {
	return []byte(strings.ReplaceAll(string(key), "ED25519 PRIVATE KEY", "PRIVATE KEY"))
}

func certificateOf(t *testing.T, text string) *x509.Certificate {
	t.Helper()

	data, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)

	block, _ := pem.Decode(data)
	require.NotNil(t, block)

	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)

	return c
}
