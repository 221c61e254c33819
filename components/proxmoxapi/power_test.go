package proxmoxapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// managed is a Proxmox VE whose high availability starts and stops VM 401, on host b, some questions after it was asked
// on host a.
func managed(t *testing.T, kind, before, after, state string, questions int32) (*httptest.Server, *atomic.Int32) {
	t.Helper()

	var asked atomic.Int32

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := `{"status":"stopped","exitstatus":"OK","node":"a"}` // of the task

		switch {
		case r.Method == http.MethodPost:
			reply = `"UPID:a:00000001:00000001:00000001:` + kind + `:401:a@pve:"`
		case strings.HasSuffix(r.URL.Path, "/cluster/resources"):
			reply = `[{"type":"qemu","vmid":401,"name":"server-1","node":"b"}]`
		case strings.HasSuffix(r.URL.Path, "/nodes/b/qemu/401/status/current"):
			power := before
			if asked.Add(1) > questions {
				power = after
			}

			reply = fmt.Sprintf(`{"vmid":401,"name":"server-1","status":%q,"ha":{"managed":1,"state":%q}}`, power, state)
		}

		_, _ = w.Write([]byte(`{"data":` + reply + `}`))
	}))
	t.Cleanup(server.Close)

	return server, &asked
}

// TestPowerByHighAvailability: what high availability is asked for is done when it is done, not when it was asked.
func TestPowerByHighAvailability(t *testing.T) {
	vm := VM{ID: 401, Host: "a"}

	t.Run("shut down", func(t *testing.T) {
		server, asked := managed(t, "hastop", "running", "stopped", "request_stop", 2)
		client, _ := impatient(t, Access{Endpoint: server.URL})
		require.NoError(t, client.Shutdown(t.Context(), vm))
		assert.Equal(t, int32(3), asked.Load(), "until it is off")
	})

	t.Run("started", func(t *testing.T) {
		server, asked := managed(t, "hastart", "stopped", "running", "starting", 2)
		client, _ := impatient(t, Access{Endpoint: server.URL})
		require.NoError(t, client.Start(t.Context(), vm))
		assert.Equal(t, int32(3), asked.Load(), "until it runs")
	})

	t.Run("by Proxmox VE itself", func(t *testing.T) {
		server, asked := managed(t, "qmshutdown", "running", "running", "", 0)
		client, _ := impatient(t, Access{Endpoint: server.URL})
		require.NoError(t, client.Shutdown(t.Context(), vm))
		assert.Zero(t, asked.Load(), "its task has ended")
	})

	t.Run("not in time", func(t *testing.T) {
		server, _ := managed(t, "hastop", "running", "running", "request_stop", 0)
		client, _ := impatient(t, Access{Endpoint: server.URL, TaskTimeout: time.Millisecond})
		require.EqualError(t, client.Shutdown(t.Context(), vm), `VM 401 should have been off by high availability, but is running `+
			`on host b, in state "request_stop" of high availability: gave up after 1ms (lifecycle.taskTimeout). See 'ha-manager status' on host a`)
	})

	t.Run("given up", func(t *testing.T) {
		server, _ := managed(t, "hastart", "stopped", "stopped", "error", 0)
		client, _ := impatient(t, Access{Endpoint: server.URL})
		require.ErrorContains(t, client.Start(t.Context(), vm), "VM 401 should have been running by high "+
			"availability, but is "+
			"stopped on host b: high availability has given up on it")
	})
}

// TestEject: only an ISO file is taken out of a drive. Proxmox VE would delete a cloud-init drive, and detach a
// hard disk.
func TestEject(t *testing.T) {
	for drive, written := range map[string]bool{
		"local:iso/talos.iso,media=cdrom,size=96M":               true,
		"none,media=cdrom":                                       false,
		"local-lvm:vm-401-cloudinit,media=cdrom":                 false,
		"local:401/vm-401-cloudinit.qcow2,media=cdrom,size=366K": false,
		"local-lvm:vm-401-disk-2,size=100G":                      false,
	} {
		t.Run(drive, func(t *testing.T) {
			var puts atomic.Int32

			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					puts.Add(1)
				}

				fmt.Fprintf(w, `{"data":{"ide2":%q}}`, drive)
			}))
			t.Cleanup(server.Close)

			client, _ := impatient(t, Access{Endpoint: server.URL})
			require.NoError(t, client.Eject(t.Context(), VM{ID: 401, Host: "a"}, "ide2"))
			assert.Equal(t, written, puts.Load() == 1)
		})
	}
}
