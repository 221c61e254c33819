package proxmoxapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAwaitDeletions: what runs on the datastore is waited for, whether it fails or not; what has ended, or is of a disk
// or another datastore, is not asked for again.
func TestAwaitDeletions(t *testing.T) {
	const (
		running = "UPID:pve:00000001:00000001:00000001:imgdel:local:a@pve:"
		ended   = "UPID:pve:00000002:00000001:00000001:imgdel:local:a@pve:"
		disk    = "UPID:pve:00000003:00000001:00000001:imgdel:401@local:a@pve:"
		tank    = "UPID:pve:00000004:00000001:00000001:imgdel:tank:a@pve:"
	)

	var asked []string

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := `{"data":[{"upid":"` + running + `","id":"local","status":"RUNNING"},` +
			`{"upid":"` + ended + `","id":"local","status":"OK"},` +
			`{"upid":"` + disk + `","id":"401@local","status":"RUNNING"},` +
			`{"upid":"` + tank + `","id":"tank","status":"RUNNING"}]}`

		if strings.HasSuffix(r.URL.Path, "/status") {
			reply = `{"data":{"status":"running","upid":"` + running + `","node":"pve"}}`
			if len(asked) > 1 {
				reply = `{"data":{"status":"stopped","exitstatus":"no such file","upid":"` + running + `","node":"pve"}}`
			}
		}

		asked = append(asked, r.URL.RequestURI())
		_, _ = w.Write([]byte(reply))
	}))
	t.Cleanup(server.Close)

	client, _ := impatient(t, Access{Endpoint: server.URL})
	require.NoError(t, client.AwaitDeletions(t.Context(), "pve", "local"))

	status := "/api2/json/nodes/pve/tasks/" + running + "/status"
	assert.Equal(t, []string{"/api2/json/nodes/pve/tasks?source=active&typefilter=imgdel", status, status}, asked)
}

// TestDeleteFile: the deletion has ended when it returns.
func TestDeleteFile(t *testing.T) {
	const task = "UPID:pve:00000001:00000001:00000001:imgdel::a@pve:"

	var asked []string

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)

		reply := `{"data":{"status":"stopped","exitstatus":"OK","upid":"` + task + `","node":"pve"}}`
		if r.Method == http.MethodDelete {
			reply = `{"data":"` + task + `"}`
		}

		_, _ = w.Write([]byte(reply))
	}))
	t.Cleanup(server.Close)

	client, _ := impatient(t, Access{Endpoint: server.URL})
	require.NoError(t, client.DeleteFile(t.Context(), "pve", "local:iso/talos.iso"))
	assert.Equal(t, "DELETE /api2/json/nodes/pve/storage/local/content/local:iso/talos.iso", asked[0])
	assert.Contains(t, asked, "GET /api2/json/nodes/pve/tasks/"+task+"/status")
}
