package main

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseBucket(t *testing.T) {
	t.Parallel()

	b, err := parseBucket("s3://backups/talos/atlas?region=eu-central-1")
	require.NoError(t, err)
	assert.Equal(t, "s3://backups/talos/atlas", b.String())
	assert.Equal(t, "s3.amazonaws.com", b.endpoint)
	assert.True(t, b.options.Secure)

	const remedy = ": write s3://bucket/prefix?region=eu-central-1, or, for another service, " +
		"s3://bucket/prefix?endpoint=https://minio.lan:9000&s3ForcePathStyle=true"

	for text, rule := range map[string]string{
		"backups":                          "is not the URL of a bucket",
		"s3:///talos":                      "is not the URL of a bucket",
		"gs://backups":                     "is not the URL of a bucket",
		"s3://backups?Region=a":            "sets Region, which is not one of endpoint, profile, region, s3ForcePathStyle",
		"s3://backups?endpoint=minio.lan":  "has an endpoint that is not the URL of a server",
		"s3://backups?s3ForcePathStyle=ja": "has s3ForcePathStyle, which must be true or false",
	} {
		_, err := parseBucket(text)
		require.EqualError(t, err, `--to: "`+text+`" `+rule+remedy)
	}
}

// TestPutBucket: what arrives is what was sent, signed, and nothing is overwritten.
func TestPutBucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "robot")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret")

	var mu sync.Mutex

	kept, checksums := map[string]string{}, map[string]string{}
	lose := false // the answer to the next request that stores a file
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)

		mu.Lock()
		defer mu.Unlock()

		sum := md5.Sum(body) //nolint:gosec // what S3 has for this

		switch _, there := kept[r.URL.Path]; {
		case r.Method == http.MethodHead && r.Header.Get("Authorization") != "" && there:
			w.Header().Set("X-Amz-Meta-Sha256", checksums[r.URL.Path])
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		case r.Method != http.MethodPut, base64.StdEncoding.EncodeToString(sum[:]) != r.Header.Get("Content-Md5"):
			w.WriteHeader(http.StatusBadRequest)
		case !bytes.Contains([]byte(r.Header.Get("Authorization")), []byte("Credential=robot/")):
			w.WriteHeader(http.StatusForbidden)
		case there && r.Header.Get("If-None-Match") == "*":
			w.WriteHeader(http.StatusPreconditionFailed)
		default:
			kept[r.URL.Path], checksums[r.URL.Path] = string(body), r.Header.Get("X-Amz-Meta-Sha256")

			if lose {
				lose = false

				panic(http.ErrAbortHandler)
			}

			w.Header().Set("ETag", `"1"`)
		}
	}))
	t.Cleanup(server.Close)

	to := func(query string) *bucket {
		b, err := parseBucket("s3://backups/talos?s3ForcePathStyle=true&region=eu-central-1&endpoint=" + server.URL + query)
		require.NoError(t, err)

		b.options.Transport, b.options.MaxRetries = server.Client().Transport, 2

		return b
	}

	file := filepath.Join(t.TempDir(), "atlas.20261121-180000.db.age")
	require.NoError(t, os.WriteFile(file, []byte("encrypted"), 0o600))
	require.NoError(t, os.WriteFile(file+".json", []byte("{}"), 0o600))

	lose = true

	require.NoError(t, to("").put(t.Context(), file, file+".json"), "an answer is lost, and the file is there")

	whole := map[string]string{
		"/backups/talos/atlas.20261121-180000.db.age":      "encrypted",
		"/backups/talos/atlas.20261121-180000.db.age.json": "{}",
	}
	assert.Equal(t, whole, kept)

	// Another of that name.
	require.NoError(t, os.WriteFile(file, []byte("something else"), 0o600))
	require.EqualError(t, to("").put(t.Context(), file),
		file+" is not copied to s3://backups/talos: another file of that name is there, and stays")
	assert.Equal(t, whole, kept)

	t.Setenv("AWS_ACCESS_KEY_ID", "another")

	err := to("").put(t.Context(), file)
	require.ErrorContains(t, err, file+" is not copied to s3://backups/talos: ")
	assert.NotContains(t, err.Error(), "a-secret")
}
