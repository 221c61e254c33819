package proxmoxapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lockedServer refuses to start a VM so many times, by its answer or by the end of its task, as another is at it, or,
// without a lock, because there are too many requests. The VM has one identity after the other, the last of them for
// good.
func lockedServer(t *testing.T, times int, byTask bool, lock string, uuids ...string) (*Client, *int) {
	t.Helper()

	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if asked++; asked <= times && lock == "" {
				w.WriteHeader(http.StatusTooManyRequests)

				return
			}

			if asked <= times && !byTask {
				// Proxmox VE gives the reason in the status line.
				connection, _, err := http.NewResponseController(w).Hijack()
				assert.NoError(t, err)

				_, _ = connection.Write([]byte("HTTP/1.1 500 " + lock + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
				_ = connection.Close()

				return
			}

			_, _ = w.Write([]byte(`{"data":"UPID:pve:00000001:00000001:00000001:qmstart:401:a@pve:"}`))

			return
		}

		if strings.HasSuffix(r.URL.Path, "/config") {
			config := "null"
			if len(uuids) > 0 {
				config = `{"smbios1":"` + uuids[0] + `"}`
				uuids = uuids[min(1, len(uuids)-1):]
			}

			_, _ = w.Write([]byte(`{"data":` + config + `}`))

			return
		}

		status := "OK"
		if asked <= times {
			status = lock
		}

		_, _ = w.Write([]byte(`{"data":{"status":"stopped","exitstatus":"` + status +
			`","upid":"UPID:pve:1:1:1:qmstart:401:a@pve:","node":"pve"}}`))
	}))
	t.Cleanup(server.Close)

	c, err := New(Access{Endpoint: server.URL, Insecure: true, TokenID: "a@pve!b", TokenSecret: "c"})
	require.NoError(t, err)

	c.lockPause = time.Millisecond

	return c, &asked
}

// TestLocks: what a lock refuses is sent again, and nothing else is.
func TestLocks(t *testing.T) {
	const one, other = "uuid=aaaaaaaa-0000-4000-8000-000000000001", "uuid=bbbbbbbb-0000-4000-8000-000000000002"

	vm := VM{ID: 401, Host: "pve"}

	for name, c := range map[string]struct {
		lock   string
		byTask bool
	}{
		"the lock file": {"can't lock file '/var/lock/qemu-server/lock-401.conf' - got timeout", false},
		"a clone":       {"VM is locked (clone)", true},
		"a deletion":    {"VM is locked (snapshot-delete)", true},
		"a datastore":   {"cfs-lock 'storage-nfs' error: got lock request timeout", true},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string

			client, asked := lockedServer(t, 2, c.byTask, c.lock, one, strings.Replace(one, "aaaaaaaa", "AAAAAAAA", 1))
			client.progress = func(m string) { said = append(said, m) }

			require.NoError(t, client.Start(t.Context(), vm))
			assert.Equal(t, 3, *asked)
			require.Len(t, said, 2)
			assert.Equal(t, "waiting to send POST /nodes/pve/qemu/401/status/start (0s of at most 30m0s): "+c.lock, said[0])
		})
	}

	t.Run("a limit of requests", func(t *testing.T) {
		for name, c := range map[string]struct {
			uuids []string
			sent  int
			said  string
		}{
			"the same VM":       {[]string{one}, 2, ""},
			"another VM by now": {[]string{one, other}, 1, "not sent again: VM 401 was replaced by another VM"},
		} {
			t.Run(name, func(t *testing.T) {
				client, asked := lockedServer(t, 1, false, "", c.uuids...)

				err := client.Start(t.Context(), vm)
				assert.Equal(t, c.sent, *asked)

				if c.said == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.said)
				}
			})
		}
	})

	t.Run("a limit while the task runs", func(t *testing.T) {
		asked := 0
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost:
				asked++

				_, _ = w.Write([]byte(`{"data":"UPID:pve:00000001:00000001:00000001:qmstart:401:a@pve:"}`))
			case strings.HasSuffix(r.URL.Path, "/config"):
				_, _ = w.Write([]byte(`{"data":{"smbios1":"` + one + `"}}`))
			default:
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		t.Cleanup(server.Close)

		client, err := New(Access{
			Endpoint: server.URL, Insecure: true, TokenID: "a@pve!b", TokenSecret: "c", GracePeriod: time.Millisecond,
		})
		require.NoError(t, err)

		client.lockPause = time.Millisecond
		require.ErrorContains(t, client.Start(t.Context(), vm), "429 Too Many Requests")
		assert.Equal(t, 1, asked, "it has begun")
	})

	t.Run("something else", func(t *testing.T) {
		client, asked := lockedServer(t, 1, true, "start failed: QEMU exited with code 1")
		require.ErrorContains(t, client.Start(t.Context(), vm), "QEMU exited with code 1")
		assert.Equal(t, 1, *asked)
	})

	for name, c := range map[string]struct {
		uuids []string
		said  string
	}{
		"another VM by now": {
			[]string{one, one, other},
			"not sent again: VM 401 was replaced by another VM: its UUID is bbbbbbbb-0000-4000-8000-000000000002 " +
				"and was aaaaaaaa-0000-4000-8000-000000000001",
		},
		"a VM without a UUID": {
			[]string{"manufacturer=a"},
			"not sent again: could not determine whether VM 401 is still the same VM: it states no UUID (smbios1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, asked := lockedServer(t, 1000, true, "VM is locked (backup)", c.uuids...)
			client.lockPause = time.Millisecond

			err := client.Start(t.Context(), vm)
			require.ErrorContains(t, err, c.said)
			require.ErrorContains(t, err, "VM is locked (backup)")
			assert.LessOrEqual(t, *asked, 2)
		})
	}

	t.Run("for too long", func(t *testing.T) {
		client, _ := lockedServer(t, 1000, false, "VM is locked (backup)", one)
		client.taskTimeout = 20 * time.Millisecond

		err := client.Start(t.Context(), vm)
		require.ErrorContains(t, err, "VM is locked (backup)")
		assert.True(t, strings.HasSuffix(err.Error(), ": gave up after 20ms (lifecycle.taskTimeout)"), err)
	})

	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client, _ := lockedServer(t, 1000, true, "VM is locked (backup)", one)
		client.lockPause = time.Minute
		client.progress = func(string) { cancel() }

		require.ErrorContains(t, client.Start(ctx, vm), "interrupted while waiting to send POST ")
	})
}
