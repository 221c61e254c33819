package proxmoxapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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
