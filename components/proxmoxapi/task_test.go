package proxmoxapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTaskTimeout: a task that does not end is given up after the operator's time.
func TestTaskTimeout(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := `{"data":{"status":"running","upid":"UPID:pve:1:1:1:qmstart:401:a@pve:","node":"pve"}}`
		if r.Method == http.MethodPost {
			reply = `{"data":"UPID:pve:00000001:00000001:00000001:qmstart:401:a@pve:"}`
		}

		_, _ = w.Write([]byte(reply))
	}))
	t.Cleanup(server.Close)

	c, err := New(Access{
		Endpoint: server.URL, Insecure: true, TokenID: "a@pve!b", TokenSecret: "c",
		TaskTimeout: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}

	err = c.Start(t.Context(), VM{ID: 401, Host: "pve"})
	if err == nil || !strings.Contains(err.Error(), "gave up after 1ms (lifecycle.taskTimeout)") {
		t.Errorf("got %v", err)
	}
}

// TestTaskWarnings: a task that ends with warnings has done its work.
func TestTaskWarnings(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := `{"data":{"status":"stopped","exitstatus":"WARNINGS: 2","upid":"UPID:pve:1:1:1:qmstart:401:a@pve:",` +
			`"node":"pve"}}`
		if r.Method == http.MethodPost {
			reply = `{"data":"UPID:pve:00000001:00000001:00000001:qmstart:401:a@pve:"}`
		}

		_, _ = w.Write([]byte(reply))
	}))
	t.Cleanup(server.Close)

	client, said := impatient(t, Access{Endpoint: server.URL})
	require.NoError(t, client.Start(t.Context(), VM{ID: 401, Host: "pve"}))
	assert.Equal(t, []string{
		"the task of POST /nodes/pve/qemu/401/status/start has ended with warnings (2): read its log on host pve",
	}, *said)
}
