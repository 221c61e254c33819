package pve_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// site is a web server with a file, its compressed form, and a page that is not there.
func site(t *testing.T) (plain *httptest.Server, text string) {
	t.Helper()

	text = strings.Repeat("talos ", 1000)

	var packed bytes.Buffer

	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(text))
	require.NoError(t, z.Close())

	mux := http.NewServeMux()
	mux.HandleFunc("/talos.iso", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "talos.txt", time.Time{}, strings.NewReader(text))
	})
	mux.HandleFunc("/talos.raw.gz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed.Bytes()) })
	mux.HandleFunc("/named", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="other.iso"`)
	})

	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	return server, text
}

const (
	query    = "/nodes/pve1/query-url-metadata"
	download = "/nodes/pve1/storage/local/download-url"
)

func TestQueryURLMetadata(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	server, text := site(t)

	require.Equal(t, map[string]any{"filename": "talos.iso", "size": float64(len(text)), "mimetype": "text/plain"},
		f.ok("GET", query, "url", server.URL+"/talos.iso", "verify-certificates", "1"))
	require.Equal(t, map[string]any{"filename": "other.iso"}, f.ok("GET", query, "url", server.URL+"/named?x=y"))

	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()

	host := strings.TrimPrefix(secure.URL, "https://")

	require.Equal(t, "500 invalid server response: '404 Not Found'",
		f.call("GET", query, "url", server.URL+"/gone").status())
	require.Equal(t,
		"500 invalid server response: '500 Can't connect to factory.talos.dev:443 (Name or service not known)'",
		f.call("GET", query, "url", "https://factory.talos.dev/x").status(), "nothing leaves loopback")
	require.Equal(t, "500 invalid server response: '500 Can't connect to "+host+" (certificate verify failed)'",
		f.call("GET", query, "url", secure.URL).status())
	require.Equal(t, "500 invalid server response: '404 Not Found'",
		f.call("GET", query, "url", secure.URL, "verify-certificates", "0").status())
	require.Equal(t, map[string]string{"url": "value does not match the regex pattern"},
		f.call("GET", query, "url", "ftp://x").Errors)
	require.NoError(t, f.journal.Unknown())
}

func TestDownloadURL(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	server, text := site(t)
	sum := sha256.Sum256([]byte(text))
	get := func(pairs ...string) string {
		return f.task("POST", download, append(
			[]string{"content", "iso", "node", "pve1", "storage", "local", "verify-certificates", "1"}, pairs...)...)
	}
	iso, packed := server.URL+"/talos.iso", server.URL+"/talos.raw.gz"

	require.Equal(t, "OK", get("url", iso, "filename", "a b:c.iso"))
	require.Contains(t, f.list(f.ok("GET", "/nodes/pve1/storage/local/content", "content", "iso"))[0]["volid"],
		"local:iso/a_b_c.iso")
	require.Equal(t, map[string]any{
		"path": "/var/lib/vz/template/iso/a_b_c.iso", "size": float64(len(text)), "used": float64(len(text)), "format": "raw",
	}, f.ok("GET", "/nodes/pve1/storage/local/content/local:iso%2Fa_b_c.iso"))
	require.Empty(t, f.ok("GET", "/nodes/pve2/storage/local/content"), "the other host has a storage of its own")

	require.Equal(t, "refusing to override existing file '/var/lib/vz/template/iso/a_b_c.iso'",
		get("url", iso, "filename", "a_b_c.iso"))

	require.Equal(t, "OK", get("url", iso, "filename", "sum.img", "checksum", hex.EncodeToString(sum[:]),
		"checksum-algorithm", "sha256"))
	require.Equal(t, "OK", get("url", iso, "filename", "sum.img", "checksum", hex.EncodeToString(sum[:]),
		"checksum-algorithm", "sha256"), "it is there already")
	require.Regexp(t, "^checksum mismatch: got '[0-9a-f]{64}' != expect '12', aborting$",
		get("url", iso, "filename", "sum.img", "checksum", "12", "checksum-algorithm", "sha256"))
	require.Regexp(t, "^checksum mismatch: got '[0-9a-f]{32}' != expect '12'$",
		get("url", iso, "filename", "wrong.img", "checksum", "12", "checksum-algorithm", "md5"))

	require.Equal(t, "OK", get("url", packed, "filename", "talos.img", "compression", "gz"))
	require.InDelta(t, len(text), f.object(f.ok("GET", "/nodes/pve1/storage/local/content/local:iso%2Ftalos.img"))["size"],
		0)
	require.Regexp(t, "^command 'zstd -q -d -c /var/lib/vz/template/iso/zst.img.* failed: exit code 1$",
		get("url", packed, "filename", "zst.img", "compression", "zst"))

	require.Equal(t, "download failed: exit code 8", get("url", server.URL+"/gone", "filename", "gone.iso"))
	require.Equal(t, "download failed: wget: unable to resolve host address ‘factory.talos.dev’",
		get("url", "https://factory.talos.dev/x", "filename", "x.iso"))

	downloads := f.world.Downloads()
	require.Len(t, downloads, 7, "what was refused or there already was not asked for")
	require.Equal(t, world.Download{Host: "pve1", URL: iso, Volume: "local:iso/a_b_c.iso", Bytes: int64(len(text))},
		downloads[0])
	require.Equal(t, "download failed: exit code 8", downloads[5].Error)

	require.Equal(t, "OK", f.task("DELETE", "/nodes/pve1/storage/local/content/local:iso%2Fsum.img"))
	require.Equal(t, "OK", f.task("DELETE", "/nodes/pve1/storage/local/content/local:iso%2Fsum.img"),
		"its presence is not checked")

	for _, c := range []struct {
		field, want string
		pairs       []string
	}{
		{"filename", "wrong file extension", []string{"content", "iso", "filename", "talos.raw"}},
		{
			"content", "value 'images' does not have a value in the enumeration 'iso, vztmpl, import'",
			[]string{"content", "images", "filename", "a.iso"},
		},
		{
			"checksum-algorithm", "missing property required by 'checksum'",
			[]string{"content", "iso", "filename", "a.iso", "checksum", "1"},
		},
	} {
		require.Equal(t, map[string]string{c.field: c.want}, f.call("POST", download, append(c.pairs, "url", iso)...).Errors)
	}

	require.Equal(t, "500 can't upload to storage type 'lvmthin', not a file based storage!",
		f.call("POST", "/nodes/pve1/storage/tank/download-url", "url", iso, "content", "iso", "filename", "a.iso").status())
	require.Equal(t, "500 storage 'local' is not configured for content-type 'vztmpl'",
		f.call("POST", download, "url", iso, "content", "vztmpl", "filename", "a.tar.gz").status())
	require.NoError(t, f.journal.Unknown())
}

func TestWhoMayDownload(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	server, _ := site(t)
	pairs := []string{"url", server.URL + "/talos.iso", "content", "iso", "filename", "a.iso"}

	f.world.Grant(tokenID, "/", "Sys.Audit", "Datastore.Audit")
	require.Equal(t, "403 Permission check failed", f.call("GET", query, "url", server.URL+"/talos.iso").status())
	require.Equal(t, "403 Permission check failed (/storage/local, Datastore.AllocateTemplate)",
		f.call("POST", download, pairs...).status())

	f.world.Grant(tokenID, "/storage/local", "Datastore.AllocateTemplate", "Datastore.Audit")
	require.Equal(t, "403 Permission check failed", f.call("POST", download, pairs...).status())

	f.world.Grant(tokenID, "/nodes/pve1", "Sys.AccessNetwork")
	require.Equal(t, "OK", f.task("POST", download, pairs...))
	require.Equal(t, "403 Permission check failed (/storage/local, Datastore.Allocate)",
		f.call("DELETE", "/nodes/pve1/storage/local/content/local:iso%2Fa.iso").status())

	f.world.Grant(tokenID, "/", "Sys.Audit", "Sys.Modify")
	f.world.Grant(tokenID, "/nodes/pve1")
	f.ok("GET", query, "url", server.URL+"/talos.iso")
}
