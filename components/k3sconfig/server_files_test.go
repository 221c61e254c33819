package k3sconfig

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func archiveOf(t *testing.T, files map[string]string) string {
	t.Helper()

	var b bytes.Buffer

	compressed := gzip.NewWriter(&b)
	archive := tar.NewWriter(compressed)

	for _, name := range slices.Sorted(maps.Keys(files)) {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: "./" + name, Size: int64(len(files[name]))}))

		_, err := archive.Write([]byte(files[name]))
		require.NoError(t, err)
	}

	require.NoError(t, archive.Close())
	require.NoError(t, compressed.Close())

	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestReadServerFiles: what a server keeps is the identity that it was told, and errors show nothing of it.
func TestReadServerFiles(t *testing.T) {
	t.Parallel()

	made, err := NewIdentity("c", time.Now())
	require.NoError(t, err)

	files := map[string]string{
		"token": made.ServerToken() + "\n", "agent-token": made.JoinToken() + "\n", "tls/service.key": made.ServiceAccountKey,
	}
	for name, pair := range map[string]KeyPair{
		"server-ca": made.ServerCA, "client-ca": made.ClientCA, "request-header-ca": made.RequestHeaderCA,
		"etcd/server-ca": made.EtcdServerCA, "etcd/peer-ca": made.EtcdPeerCA,
	} {
		files["tls/"+name+".crt"], files["tls/"+name+".key"] = pair.Certificate, pair.Key
	}

	read, err := ReadServerFiles(archiveOf(t, files))
	require.NoError(t, err)
	assert.True(t, made.Same(read))

	read.Token = "another"
	assert.False(t, made.Same(read))

	delete(files, "tls/client-ca.key")
	files["token"] = "a-token"
	_, err = ReadServerFiles(archiveOf(t, files))
	require.EqualError(t, err, "tls/client-ca.crt and .key are not a certificate with its key, token is not the token of a server")

	// K3s computes the tokens of authorities that operators made in another way.
	files["token"], files["tls/client-ca.key"] = made.ServerToken(), made.ClientCA.Key
	files["tls/server-ca.crt"] += made.ClientCA.Certificate
	_, err = ReadServerFiles(archiveOf(t, files))
	require.EqualError(t, err, "tls/server-ca.crt and .key are not one certificate with an elliptic curve key, as K3s makes "+
		"them: a cluster with authorities of its operator's cannot be imported")

	_, err = ReadServerFiles("no archive")
	require.EqualError(t, err, "it is not a compressed tar archive in base64")
}
