package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadRegistryLogins: a login has the name of a registry and a way to log in, what is PEM can be read, and no
// message quotes any of it.
func TestReadRegistryLogins(t *testing.T) {
	t.Parallel()

	const (
		pem   = ": give the content of the file, in PEM"
		named = " must be the host of a registry: "
		form  = "write it like registry.lan:5000 or *"
		key   = "a has a key that is not the private key of its certificate" + pem + " and without a passphrase"
	)

	client, other := pair(t), pair(t)
	certificate := fmt.Sprintf("certificate: %q", client.CrtPEM)
	broken := strings.Replace(string(client.CrtPEM), "MII", "hunter2", 1)

	for name, test := range map[string]struct{ text, want string }{
		"a password":      {text: "registry.lan:5000: {username: robot, password: hunter2}"},
		"auth":            {text: "registry.lan: {auth: hunter2}"},
		"a token":         {text: "'*': {identityToken: hunter2}"},
		"an IPv6 address": {text: "'[fd00::1]:5000': {auth: hunter2}"},
		"TLS":             {text: fmt.Sprintf("a: {ca: %q, %s, key: %q}", client.CrtPEM, certificate, client.KeyPEM)},
		"TLS and a login": {text: fmt.Sprintf("a: {auth: hunter2, %s, key: %q}", certificate, client.KeyPEM)},
		"two authorities": {text: fmt.Sprintf("a: {ca: %q}", string(client.CrtPEM)+string(other.CrtPEM))},
		"a URL": {
			text: "https://registry.lan: {auth: x}",
			want: "https://registry.lan" + named + "leave the scheme out, and " + form,
		},
		"a URL with a login": {
			text: "https://robot:hunter2@registry.lan: {auth: x}",
			want: "registry.lan" + named + "leave the scheme out, and " + form,
		},
		"a path":           {text: "registry.lan/hub: {auth: x}", want: "registry.lan/hub" + named + form},
		"two ways":         {text: "a: {username: robot, password: hunter2, auth: hunter2}"},
		"the path of a ca": {text: "a: {ca: /etc/hunter2.pem}", want: "a has a ca that is not a certificate" + pem},
		"a key as ca":      {text: fmt.Sprintf("a: {ca: %q}", client.KeyPEM), want: "a has a ca that is not a certificate" + pem},
		"a broken ca":      {text: fmt.Sprintf("a: {ca: %q}", broken), want: "a has a ca that is not a certificate" + pem},
		"no certificate": {
			text: fmt.Sprintf("a: {certificate: hunter2, key: %q}", client.KeyPEM),
			want: "a has a certificate that is not one" + pem,
		},
		"no key":            {text: "a: {" + certificate + ", key: hunter2}", want: key},
		"the key of others": {text: fmt.Sprintf("a: {%s, key: %q}", certificate, other.KeyPEM), want: key},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := ReadRegistryLogins(test.text)
			if test.want == "" {
				require.NoError(t, err)

				return
			}

			require.EqualError(t, err, test.want)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// pair is a certificate with its key.
func pair(t *testing.T) *x509.CertificateAuthority {
	t.Helper()

	made, err := x509.NewSelfSignedCertificateAuthority()
	require.NoError(t, err)

	return made
}
