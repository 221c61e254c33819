package components

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// TestSecretsBundle: what the provider made of a bundle becomes that bundle again, and Talos reads it.
func TestSecretsBundle(t *testing.T) {
	want, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_3)
	require.NoError(t, err)

	encode := base64.StdEncoding.EncodeToString
	pair := func(c *x509.PEMEncodedCertificateAndKey) machine.Certificate {
		return machine.Certificate{Cert: encode(c.Crt), Key: encode(c.Key)}
	}

	held := machine.MachineSecrets{
		Certs: machine.Certificates{
			Etcd: pair(want.Certs.Etcd), K8s: pair(want.Certs.K8s), K8sAggregator: pair(want.Certs.K8sAggregator), Os: pair(want.Certs.OS),
			K8sServiceaccount: machine.Key{Key: encode(want.Certs.K8sServiceAccount.Key)},
		},
		Cluster:    machine.Cluster{Id: want.Cluster.ID, Secret: want.Cluster.Secret},
		Trustdinfo: machine.TrustdInfo{Token: want.TrustdInfo.Token},
		Secrets: machine.KubernetesSecrets{
			BootstrapToken: want.Secrets.BootstrapToken, SecretboxEncryptionSecret: want.Secrets.SecretboxEncryptionSecret,
		},
	}

	got, err := bundleOf(held)
	require.NoError(t, err)

	text, err := yaml.Marshal(got)
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))

	read, err := secrets.LoadBundle(path)
	require.NoError(t, err)
	require.NoError(t, read.Validate())

	read.Clock, want.Clock = nil, nil
	assert.Equal(t, want, read)

	held.Certs.Etcd.Key = "?"
	_, err = bundleOf(held)
	assert.EqualError(t, err, "the machine secrets hold what is no base64")
}
