package pve_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/timeline"
)

func TestOnlyTLS13(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	address := strings.TrimPrefix(f.url, "https://")

	_, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) //nolint:gosec // on purpose
	require.ErrorContains(t, err, "protocol version")

	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}) //nolint:gosec // on purpose
	require.NoError(t, err)
	require.Equal(t, "http/1.1", conn.ConnectionState().NegotiatedProtocol)
	require.NoError(t, conn.Close())
}

func TestErrorsAreInTheStatusLine(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	a := f.call("GET", "/nodes/pve1/qemu/101/config")
	require.Equal(t, "500 Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist", a.status())
	require.Equal(t, "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist\n", a.Message)
	require.Nil(t, a.Data)

	a = f.call("POST", "/nodes/pve1/qemu", "vmid", "101", "name", "a_b")
	require.Equal(t, "400 Parameter verification failed.", a.status())
	require.Equal(t, map[string]string{"name": "invalid format - value does not look like a valid DNS name"}, a.Errors)

	a = f.call("GET", "/nodes/pve9/qemu")
	require.Equal(t, "500 hostname lookup 'pve9' failed - failed to get address info for: pve9: Name or service not known",
		a.status())

	require.NoError(t, f.world.SetOffline("pve2", true))
	a = f.call("GET", "/nodes/pve2/status")
	require.Equal(t, "595 No route to host", a.status())
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	reused := false
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}

	for range 3 {
		response, err := f.request(httptrace.WithClientTrace(t.Context(), trace), "GET", "/version", nil, "")
		require.NoError(t, err)
		f.read(response)
	}

	require.True(t, reused)
}

func TestWhoIsLetIn(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	for header, want := range map[string]string{
		"":                                  "401 No ticket",
		"PVEAPIToken=" + tokenID + "=wrong": "401 Authentication failed!",
		"PVEAPIToken=nonsense":              "401 Authentication failed!",
	} {
		f.header = http.Header{}
		if header != "" {
			f.header.Set("Authorization", header)
		}

		require.Equal(t, want, f.call("GET", "/version").status())
	}

	f.header = http.Header{}
	require.Equal(t, "401 authentication failure",
		f.call("POST", "/access/ticket", "username", "root@pam", "password", "x").status())

	ticket := f.object(f.ok("POST", "/access/ticket", "username", "root@pam", "password", password))
	require.Equal(t, "root@pam", ticket["username"])

	f.header.Set("Cookie", "PVEAuthCookie="+url.QueryEscape(ticket["ticket"].(string)))
	f.ok("GET", "/version")
	require.Equal(t, "401 Permission denied - invalid csrf token", f.call("POST", "/pools", "poolid", "p").status())

	f.header.Set("CSRFPreventionToken", ticket["CSRFPreventionToken"].(string))
	f.ok("POST", "/pools", "poolid", "p")

	require.NoError(t, f.journal.Unknown())
}

func TestATokenWithoutPrivileges(t *testing.T) {
	f := serve(t, timeline.Latencies{})
	f.world.AddToken("u@pve!t", "s")
	f.header.Set("Authorization", "PVEAPIToken=u@pve!t=s")

	require.Equal(t, "403 Permission check failed (/vms/9000, VM.Clone)",
		f.call("POST", "/nodes/pve1/qemu/9000/clone", "newid", "101").status())
	require.Equal(t, "403 Permission check failed (/vms/9000, VM.Audit)",
		f.call("GET", "/nodes/pve1/qemu/9000/config").status())

	// Lists are short instead.
	for _, path := range []string{
		"/cluster/resources?type=vm", "/nodes/pve1/qemu", "/pools", "/nodes/pve1/storage",
		"/cluster/mapping/pci",
	} {
		require.Empty(t, f.ok("GET", path), path)
	}

	// One's own tasks are one's own business, others' are not.
	f.world.Grant("u@pve!t", "/vms", "VM.PowerMgmt")
	require.Contains(t, f.task("POST", "/nodes/pve1/qemu/9000/status/start"), "template")

	upid := f.world.Tasks("pve1")[0].UPID
	f.world.AddToken("o@pve!t", "s")
	f.header.Set("Authorization", "PVEAPIToken=o@pve!t=s")
	require.Equal(t, "403 Permission check failed (/nodes/pve1, Sys.Audit)",
		f.call("GET", "/nodes/pve1/tasks/"+url.PathEscape(upid)+"/status").status())
}

func TestWhatIsNotKnownIsRefused(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	for _, c := range []struct{ method, path, want string }{
		{"GET", "/nodes/pve1/ceph", "501 Method 'GET /nodes/pve1/ceph' not implemented"},
		{"PATCH", "/version", "501 Method 'PATCH /version' not implemented"},
		{"GET", "/cluster/resources?colour=red", "501 parameter 'colour' not implemented"},
		{"GET", "", "501 Method 'GET /api2/json' not implemented"},
		{"POST", "/nodes/pve1/qemu?vmid=101&scsi31=tank:1", "501 parameter 'scsi31' not implemented"},
	} {
		require.Equal(t, c.want, f.call(c.method, c.path).status())
	}

	response, err := f.request(t.Context(), "POST", "/pools", strings.NewReader("x"), "text/plain")
	require.NoError(t, err)
	require.Equal(t, `501 a body of type "text/plain"`, f.read(response).status())

	require.EqualError(t, f.journal.Unknown(), `the lab was asked for what it does not know:
  proxmox GET /nodes/pve1/ceph: Method 'GET /nodes/pve1/ceph' not implemented
  proxmox PATCH /version: Method 'PATCH /version' not implemented
  proxmox GET /cluster/resources: parameter 'colour' not implemented
  proxmox GET /api2/json: Method 'GET /api2/json' not implemented
  proxmox POST /nodes/pve1/qemu: parameter 'scsi31' not implemented
  proxmox POST /pools: a body of type "text/plain"`)
}

func TestPathsAsClientsWriteThem(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	// One client deletes VM 0 between attempts to create one, with a slash before the query.
	a := f.call("DELETE", "/nodes/pve1/qemu/0/?destroy-unreferenced-disks=1&purge=1")
	require.Equal(t, "400 Parameter verification failed.", a.status())
	require.Equal(t, map[string]string{"vmid": "invalid format - value does not look like a valid VM ID"}, a.Errors)

	require.Equal(t, "OK", f.task("POST", "/nodes/pve1/qemu/9000/clone", "newid", "401"))
	require.Equal(t, "OK", f.task("DELETE", "/nodes/pve1/qemu/401/?destroy-unreferenced-disks=1&purge=1"))

	// A volume's slash comes escaped from one client and plain from another.
	for _, volume := range []string{"local:iso%2Ftalos.iso", "local:iso/talos.iso", "iso/talos.iso"} {
		require.Equal(t, "raw", f.object(f.ok("GET", "/nodes/pve1/storage/local/content/"+volume))["format"])
	}

	// The "!" of a token's user comes escaped and plain.
	upid := f.world.Tasks("pve1")[0].UPID
	f.ok("GET", "/nodes/pve1/tasks/"+upid+"/status")
	f.ok("GET", "/nodes/pve1/tasks/"+strings.ReplaceAll(upid, "!", "%21")+"/log")

	require.NoError(t, f.journal.Unknown())

	var calls []string
	for _, e := range f.journal.Entries() {
		calls = append(calls, e.Call)
	}
	require.Contains(t, calls, "DELETE /nodes/pve1/qemu/401")
	require.Contains(t, calls, "POST /nodes/pve1/qemu/9000/clone")
}

func TestBodiesInJSON(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	a := f.json("POST", "/nodes/pve1/qemu",
		map[string]any{"vmid": 101, "name": "n", "onboot": true, "cores": 2, "tags": nil})
	require.Equal(t, "200 OK", a.status(), a.Errors)

	a = f.json("POST", "/cluster/mapping/pci",
		map[string]any{"id": "gpu", "map": []string{"id=10de:2204,node=pve1,path=0000:01:00.0"}})
	require.Equal(t, "200 OK", a.status(), a.Errors)

	a = f.json("POST", "/pools", map[string]any{"poolid": map[string]any{}})
	require.Equal(t, "400 Parameter verification failed.", a.status())

	response, err := f.request(t.Context(), "POST", "/pools", strings.NewReader("{"), "application/json")
	require.NoError(t, err)
	require.Equal(t, 400, f.read(response).code)
	require.NoError(t, f.journal.Unknown())
}

func TestParameters(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	for _, c := range []struct {
		pairs []string
		want  map[string]string
	}{
		{nil, map[string]string{"newid": "property is missing and it is not optional"}},
		{[]string{"newid", "x"}, map[string]string{"newid": "type check ('integer') failed - got 'x'"}},
		{[]string{"newid", "7"}, map[string]string{"newid": "invalid format - value does not look like a valid VM ID"}},
		{
			[]string{"newid", "101", "full", "perhaps"},
			map[string]string{"full": "type check ('boolean') failed - got 'perhaps'"},
		},
		{
			[]string{"newid", "101", "newid", "102"},
			map[string]string{"newid": "duplicate parameter (already defined) with conflicting values!"},
		},
	} {
		a := f.call("POST", "/nodes/pve1/qemu/9000/clone", c.pairs...)
		require.Equal(t, "400 Parameter verification failed.", a.status())
		require.Equal(t, c.want, a.Errors)
	}
}

func TestFaults(t *testing.T) {
	f := serve(t, timeline.Latencies{})

	plant := func(kind journal.Kind, call, message string) {
		f.journal.Plant(journal.Fault{Face: journal.Proxmox, Call: regexp.MustCompile(call), Kind: kind, Message: message})
	}

	plant(journal.Refuse, "^GET /version$", "got timeout")
	require.Equal(t, "500 got timeout", f.call("GET", "/version").status())
	f.ok("GET", "/version")

	// A refusal of a call with a body arrives whole.
	plant(journal.Refuse, "POST .*/clone$", "cluster not ready - no quorum?")
	require.Equal(t, "500 cluster not ready - no quorum?",
		f.call("POST", "/nodes/pve1/qemu/9000/clone", "newid", "401").status())

	plant(journal.Reset, "POST .*/clone$", "")
	_, err := f.request(t.Context(), "POST", "/nodes/pve1/qemu/9000/clone?newid=401", nil, "")
	require.Error(t, err)
	_, err = f.world.VM("pve1", 401)
	require.Error(t, err, "nothing was done")

	plant(journal.LoseReply, "POST .*/clone$", "")
	_, err = f.request(t.Context(), "POST", "/nodes/pve1/qemu/9000/clone?newid=401", nil, "")
	require.Error(t, err)
	_, err = f.world.VM("pve1", 401)
	require.NoError(t, err, "it was done all the same")

	plant(journal.FailTask, "POST .*/clone$", "no space left")
	require.Equal(t, "no space left", f.task("POST", "/nodes/pve1/qemu/9000/clone", "newid", "402"))
	_, err = f.world.VM("pve1", 402)
	require.Error(t, err)

	plant(journal.FailTaskLate, "POST .*/clone$", "WARNINGS: 1")
	require.Equal(t, "WARNINGS: 1", f.task("POST", "/nodes/pve1/qemu/9000/clone", "newid", "402"))
	_, err = f.world.VM("pve1", 402)
	require.NoError(t, err)

	// A call that starts no task fails itself.
	plant(journal.FailTask, "PUT .*/config$", "no")
	require.Equal(t, "500 no", f.call("PUT", "/nodes/pve1/qemu/402/config", "cores", "2").status())

	// Of half an answer, the other half was done.
	plant(journal.Truncate, "POST .*/clone$", "")
	half, err := f.request(t.Context(), "POST", "/nodes/pve1/qemu/9000/clone?newid=403", nil, "")
	require.NoError(t, err)
	_, err = io.ReadAll(half.Body)
	require.Error(t, err)
	require.NoError(t, half.Body.Close())
	_, err = f.world.VM("pve1", 403)
	require.NoError(t, err)

	f.journal.Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile("^GET /version$"), Kind: journal.Answer,
		Code: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}},
	})

	limited, err := f.request(t.Context(), "GET", "/version", nil, "")
	require.NoError(t, err)
	require.NoError(t, limited.Body.Close())
	require.Equal(t, http.StatusTooManyRequests, limited.StatusCode)
	require.Equal(t, "1", limited.Header.Get("Retry-After"))

	f.world.LoseQuorum(true)
	require.Equal(t, "500 cluster not ready - no quorum?",
		f.call("POST", "/nodes/pve1/qemu/9000/clone", "newid", "404").status())
	f.ok("GET", "/nodes/pve1/qemu/9000/config")
	f.world.LoseQuorum(false)

	plant(journal.Stall, "^GET /version$", "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = f.request(ctx, "GET", "/version", nil, "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A stalled call does not keep the face from closing.
func TestAStallEndsWithTheFace(t *testing.T) {
	failed := make(chan error, 1)
	// Cleanups run last first, so by then the face is closed.
	t.Cleanup(func() { require.Error(t, <-failed) })

	f := serve(t, timeline.Latencies{})
	f.journal.Plant(journal.Fault{Face: journal.Proxmox, Call: regexp.MustCompile("version"), Kind: journal.Stall})

	go func() {
		_, err := f.request(context.WithoutCancel(t.Context()), "GET", "/version", nil, "")
		failed <- err
	}()

	require.Eventually(t, func() bool { return len(f.journal.Entries()) == 1 }, 5*time.Second, time.Millisecond)
}
