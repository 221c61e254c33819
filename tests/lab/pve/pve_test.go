package pve_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/pve"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/lab/world"
)

// face is a served world and a plain client of it.
type face struct {
	*testing.T
	world   *world.World
	journal *journal.Journal
	url     string
	http    *http.Client
	// header goes with every call; a token's by default.
	header http.Header
}

const (
	tokenID     = "pulumi@pve!talos"
	tokenSecret = "11111111-2222-3333-4444-555555555555"
	password    = "correct horse"
)

func serve(t *testing.T, latencies timeline.Latencies) *face {
	t.Helper()

	return serveVersion(t, world.Version9, latencies)
}

func serveVersion(t *testing.T, version world.Version, latencies timeline.Latencies) *face {
	t.Helper()

	storages := []world.Storage{
		{Name: "tank", Type: "lvmthin", Content: []string{"images"}, SizeGiB: 100},
		{Name: "local", Type: "dir", Content: []string{"iso", "snippets"}, SizeGiB: 50},
	}

	more := []world.Storage{
		{Name: "zfs", Type: "zfspool", Content: []string{"images"}},
		{Name: "files", Type: "dir", Content: []string{"images"}},
	}

	f := serveHosts(t, version, latencies, []world.Host{
		{
			Name: "pve1", Bridges: []string{"vmbr0", "vmbr1"}, Storages: slices.Concat(storages, more),
			PCI: world.GPU("0000:01:00", 1),
		},
		{Name: "pve2", Storages: storages},
	}, []world.HAGroup{{Name: "racks", Nodes: []string{"pve1:2", "pve2"}, Comment: "both", Restricted: true}})
	require.NoError(t, f.world.AddTemplate(world.Template{
		Name: "base", VMID: 9000, Host: "pve1", Storage: "tank", DiskGiB: 10,
	}))
	require.NoError(t, f.world.AddFile("pve1", "local", "iso", "talos.iso", 100*world.MiB, nil))

	return f
}

// serveHosts serves a world of these hosts.
func serveHosts(t *testing.T, version world.Version, latencies timeline.Latencies, hosts []world.Host,
	groups []world.HAGroup,
) *face {
	t.Helper()

	return serveWorld(t, world.Options{Version: version, Hosts: hosts, HAGroups: groups, Latencies: latencies})
}

// serveWorld serves a world that has the credentials of the tests.
func serveWorld(t *testing.T, options world.Options) *face {
	t.Helper()

	options.Credentials = world.Credentials{
		TokenID: tokenID, TokenSecret: tokenSecret, Username: "root@pam", Password: password,
	}

	w, err := world.New(options)
	require.NoError(t, err)

	j := &journal.Journal{}
	s := pve.New(w, j, timeline.New())

	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, s.Serve(l))
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		w.Close()
	})

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the face signs its own certificate
	t.Cleanup(transport.CloseIdleConnections)

	return &face{
		T: t, world: w, journal: j, url: "https://" + l.Addr().String(), http: &http.Client{Transport: transport},
		header: http.Header{"Authorization": {"PVEAPIToken=" + tokenID + "=" + tokenSecret}},
	}
}

// answer is what came back.
type answer struct {
	code    int
	reason  string
	Data    any               `json:"data"`
	Message string            `json:"message"`
	Errors  map[string]string `json:"errors"`
}

// status is the status line as clients read it.
func (a answer) status() string { return a.reason }

func (f *face) request(ctx context.Context, method, path string, body io.Reader, kind string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, f.url+"/api2/json"+path, body)
	require.NoError(f, err)

	r.Header = f.header.Clone()
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}

	return f.http.Do(r)
}

// call sends parameters as the clients do: in the query or in a form.
func (f *face) call(method, path string, pairs ...string) answer {
	f.Helper()

	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}

	var body io.Reader
	kind := ""

	switch {
	case len(form) == 0:
	case method == http.MethodGet || method == http.MethodDelete:
		path += "?" + form.Encode()
	default:
		body, kind = strings.NewReader(form.Encode()), "application/x-www-form-urlencoded"
	}

	response, err := f.request(f.Context(), method, path, body, kind)
	require.NoError(f, err)

	return f.read(response)
}

func (f *face) read(response *http.Response) answer {
	f.Helper()
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	require.NoError(f, err)

	a := answer{code: response.StatusCode, reason: response.Status}
	require.NoError(f, json.Unmarshal(text, &a), string(text))
	require.Equal(f, "application/json;charset=UTF-8", response.Header.Get("Content-Type"))
	require.Equal(f, "HTTP/1.1", response.Proto)

	return a
}

// ok makes a call that must succeed and returns its data.
func (f *face) ok(method, path string, pairs ...string) any {
	f.Helper()

	a := f.call(method, path, pairs...)
	require.Equal(f, "200 OK", a.status(), a.Errors)

	return a.Data
}

// task makes a call that starts a task, polls it as clients do, and returns its exit status.
func (f *face) task(method, path string, pairs ...string) string {
	f.Helper()

	upid, isText := f.ok(method, path, pairs...).(string)
	require.True(f, isText)

	parts := strings.Split(upid, ":")
	require.Len(f, parts, 9, upid)

	for range 3000 {
		state := f.object(f.ok("GET", "/nodes/"+parts[1]+"/tasks/"+url.PathEscape(upid)+"/status"))
		if state["status"] == "stopped" {
			return state["exitstatus"].(string)
		}

		require.Equal(f, "running", state["status"])
		require.NotContains(f, state, "exitstatus")
		time.Sleep(time.Millisecond)
	}

	require.FailNow(f, "the task does not end")

	return ""
}

func (f *face) object(data any) map[string]any {
	f.Helper()

	object, ok := data.(map[string]any)
	require.True(f, ok, data)

	return object
}

func (f *face) list(data any) []map[string]any {
	f.Helper()

	all, ok := data.([]any)
	require.True(f, ok, data)

	out := make([]map[string]any, 0, len(all))
	for _, e := range all {
		out = append(out, f.object(e))
	}

	return out
}

func (f *face) json(method, path string, body any) answer {
	f.Helper()

	text, err := json.Marshal(body)
	require.NoError(f, err)

	response, err := f.request(f.Context(), method, path, bytes.NewReader(text), "application/json")
	require.NoError(f, err)

	return f.read(response)
}

func number(t *testing.T, text string) float64 {
	t.Helper()

	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)

	return n
}
