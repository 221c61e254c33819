package k3sconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"k8s.io/client-go/tools/clientcmd"
)

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// TestIdentity: every authority signs for itself and is none of the others, and what is kept is read back whole.
func TestIdentity(t *testing.T) {
	t.Parallel()

	i, err := NewIdentity("edge", now)
	require.NoError(t, err)

	seen := map[string]bool{}

	for _, pair := range []KeyPair{i.ServerCA, i.ClientCA, i.RequestHeaderCA, i.EtcdServerCA, i.EtcdPeerCA} {
		_, err := tls.X509KeyPair([]byte(pair.Certificate), []byte(pair.Key))
		require.NoError(t, err)

		c := certificate(t, pair)
		require.NoError(t, c.CheckSignatureFrom(c))
		assert.True(t, c.IsCA)
		assert.Equal(t, now.Add(10*365*24*time.Hour), c.NotAfter)

		seen[c.Subject.CommonName] = true
		seen[pair.Key] = true
	}

	assert.Len(t, seen, 10)

	block, _ := pem.Decode([]byte(i.ServiceAccountKey))
	require.Equal(t, "RSA PRIVATE KEY", block.Type)
	assert.NotEqual(t, i.Token, i.AgentToken)
	assert.Len(t, i.Token, 64)

	signer, err := ssh.ParsePrivateKey([]byte(i.SSH.Private))
	require.NoError(t, err)

	public, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(i.SSH.Public))
	require.NoError(t, err)
	assert.Equal(t, signer.PublicKey().Marshal(), public.Marshal())
	assert.Equal(t, "admin@edge", comment)

	text, err := i.Text()
	require.NoError(t, err)

	read, err := ReadIdentity(text)
	require.NoError(t, err)
	assert.Equal(t, i, read)

	_, err = ReadIdentity("{}")
	require.EqualError(t, err, "the value in the state is not the identity of a K3s cluster")
}

// TestTokens: a token names the authority by the hash of its file, and what its holder may do.
func TestTokens(t *testing.T) {
	t.Parallel()

	hash := sha256.Sum256([]byte("<server certificate>\n"))
	i := identity()

	assert.Equal(t, "K10"+hex.EncodeToString(hash[:])+"::server:server-password", i.ServerToken())
	assert.Equal(t, "K10"+hex.EncodeToString(hash[:])+"::node:agent-password", i.JoinToken())
	assert.NotEqual(t, i.nodePassword("edge-agent-1"), i.nodePassword("edge-agent-2"))
	assert.Equal(t, i.nodePassword("edge-agent-1"), i.nodePassword("edge-agent-1"))
}

// TestKubeconfig: the administrator is known to the client authority, and only to it.
func TestKubeconfig(t *testing.T) {
	t.Parallel()

	i, err := NewIdentity("edge", now)
	require.NoError(t, err)

	text, err := i.Administrator(now)
	require.NoError(t, err)

	pair, err := ReadAdministrator(text)
	require.NoError(t, err)

	c := certificate(t, pair)
	assert.Equal(t, "system:admin", c.Subject.CommonName)
	assert.Equal(t, []string{"system:masters"}, c.Subject.Organization)
	assert.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, c.ExtKeyUsage)
	require.NoError(t, c.CheckSignatureFrom(certificate(t, i.ClientCA)))
	require.Error(t, c.CheckSignatureFrom(certificate(t, i.ServerCA)))

	end, err := pair.NotAfter()
	require.NoError(t, err)
	assert.Equal(t, "2027-03-02T12:00:00Z", end)

	kubeconfig, err := i.Kubeconfig("edge", "https://10.0.0.11:6443", pair)
	require.NoError(t, err)

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	require.NoError(t, err)
	assert.Equal(t, "https://10.0.0.11:6443", config.Host)
	assert.Equal(t, i.ServerCA.Certificate, string(config.CAData))
	assert.Equal(t, pair.Key, string(config.KeyData))
}

// TestTerm: a certificate is renewed when a half of the year has passed, long before it ends.
func TestTerm(t *testing.T) {
	t.Parallel()

	assert.Equal(t, "2026-1", Term(now))
	assert.Equal(t, "2026-1", Term(time.Date(2026, time.June, 30, 23, 59, 59, 0, time.UTC)))
	assert.Equal(t, "2026-2", Term(time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC)))
}

func certificate(t *testing.T, pair KeyPair) *x509.Certificate {
	t.Helper()

	block, _ := pem.Decode([]byte(pair.Certificate))
	require.NotNil(t, block)

	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)

	return c
}
