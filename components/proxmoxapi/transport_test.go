package proxmoxapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const nothing = `{"data":[]}`

// faulty is a server whose first answers are those given; all others are good. It counts the requests.
func faulty(t *testing.T, answers ...http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()

	var asked atomic.Int32

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := int(asked.Add(1)); n <= len(answers) {
			answers[n-1](w, r)

			return
		}

		_, _ = w.Write([]byte(nothing))
	}))
	t.Cleanup(server.Close)

	return server, &asked
}

// impatient is a client that waits for a moment only, and what it has said.
func impatient(t *testing.T, a Access) (*Client, *[]string) {
	t.Helper()

	var said []string

	a.Insecure, a.Progress = true, func(m string) { said = append(said, m) }
	if a.Username == "" {
		a.TokenID, a.TokenSecret = "a@pve!b", "c"
	}

	c, err := New(a)
	require.NoError(t, err)

	c.transport.pause, c.transport.timeout = time.Millisecond, 200*time.Millisecond

	return c, &said
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}

		w.WriteHeader(code)
	}
}

func text(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(body))
	}
}

// half announces more than it sends, and hangs or ends the connection then.
func half(hang bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(nothing[:5]))
		_ = http.NewResponseController(w).Flush()

		if hang {
			<-r.Context().Done()
		}

		panic(http.ErrAbortHandler)
	}
}

func reset(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// TestTransportFaults: a look-up outlives what passes, a change is not sent again, and nothing is taken for an answer
// that is none.
func TestTransportFaults(t *testing.T) {
	const page = "<html><title>Maintenance</title></html>"

	for name, c := range map[string]struct {
		answer http.HandlerFunc
		said   string
		// passes says whether a look-up goes on when it ends; unknown, whether a change may have been carried out.
		passes, unknown bool
		is              error
	}{
		"401": {answer: status(401), is: ErrRefused, said: "Unauthorized"},
		"403": {answer: status(403), is: ErrRefused, said: "Forbidden"},
		"429": {answer: status(429), passes: true, said: "429 Too Many Requests"},
		"502": {answer: status(502), passes: true, unknown: true, said: "with: 502 Bad Gateway"},
		"503": {answer: status(503), passes: true, unknown: true, said: "with: 503 Service Unavailable"},
		"504": {answer: status(504), passes: true, unknown: true, said: "with: 504 Gateway Timeout"},
		"a page": {
			answer: text("text/html; charset=utf-8", page), passes: true, unknown: true,
			said: "with: text/html that is not from the API of Proxmox VE: a proxy may have answered in its place",
		},
		"another API": {
			answer: text("application/json", `{"error":"maintenance"}`), passes: true, unknown: true,
			said: "with: application/json that is not from the API of Proxmox VE",
		},
		"nothing": {answer: status(200), passes: true, unknown: true, said: "with: content without a type that is not"},
		"half a body": {
			answer: half(false), passes: true, unknown: true, is: ErrUnreachable,
			said: "an incomplete answer: unexpected EOF",
		},
		"half a body that hangs": {
			answer: half(true), passes: true, unknown: true, is: ErrUnreachable,
			said: "an incomplete answer: no answer within 200ms",
		},
		"a connection that ends": {answer: reset, passes: true, unknown: true, is: ErrUnreachable, said: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			find := func(c *Client) error { _, err := c.VMs(t.Context()); return err }
			change := func(c *Client) error { return c.MoveToPool(t.Context(), VM{ID: 401}, "prod") }

			for kind, k := range map[string]struct {
				do      func(*Client) error
				passes  bool
				unknown bool
			}{"look-up": {find, c.passes, false}, "change": {change, false, c.unknown}} {
				server, asked := faulty(t, c.answer, c.answer)
				client, said := impatient(t, Access{Endpoint: server.URL})

				err := k.do(client)
				if k.passes {
					require.NoError(t, err, kind)
					assert.EqualValues(t, 3, asked.Load(), kind)
					assert.Len(t, *said, 2)

					continue
				}

				require.ErrorContains(t, err, c.said, kind)
				assert.EqualValues(t, 1, asked.Load(), kind)
				assert.Equal(t, k.unknown, strings.HasSuffix(err.Error(), "; it is unknown whether the request was "+
					"carried out"), err)

				for _, of := range []error{ErrRefused, ErrHostUnreachable, ErrUnreachable, ErrUntrusted} {
					assert.Equal(t, errors.Is(c.is, of), errors.Is(err, of), "%v: %v", err, of)
				}
			}

			// Previews send each request once, and so give the same reason.
			server, asked := faulty(t, c.answer)
			client, _ := impatient(t, Access{Endpoint: server.URL, Once: true})
			require.ErrorContains(t, find(client), c.said)
			assert.EqualValues(t, 1, asked.Load())
		})
	}
}

// TestFaultsThatLast: the grace period bounds repetitions, whatever the fault.
func TestFaultsThatLast(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"503": status(503), "503 for an hour": status(503, "Retry-After", "3600"), "a page": text("text/html", "<html>"),
		"429": status(429), "a connection that ends": reset,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			server := httptest.NewTLSServer(answer)
			t.Cleanup(server.Close)

			client, _ := impatient(t, Access{Endpoint: server.URL, GracePeriod: 20 * time.Millisecond})
			_, err := client.VMs(t.Context())
			require.Error(t, err)
		})
	}
}

// TestRetryAfter: a server that asks to wait is given the time, unless it is longer than any task may take.
func TestRetryAfter(t *testing.T) {
	later := status(429, "Retry-After", "1")

	server, asked := faulty(t, later)
	client, said := impatient(t, Access{Endpoint: server.URL, GracePeriod: time.Millisecond})

	_, err := client.VMs(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, asked.Load())
	assert.Equal(t, []string{
		"waiting to send GET /cluster/resources again (0s): 429 Too Many Requests (it asks to wait for 1s)",
	}, *said)

	server, asked = faulty(t, status(429, "Retry-After", "3600"))
	client, _ = impatient(t, Access{Endpoint: server.URL, TaskTimeout: time.Minute})
	_, err = client.VMs(t.Context())
	require.ErrorContains(t, err, "with: 429 Too Many Requests (it asks to wait for 1h0m0s)")
	assert.EqualValues(t, 1, asked.Load())

	assert.Equal(t, 90*time.Second, retryAfter(http.Header{"Retry-After": {
		time.Now().Add(90*time.Second + 500*time.Millisecond).UTC().Format(http.TimeFormat),
	}}).Round(10*time.Second))
}

// TestAPIAway: an API that was there is waited for; one that never was is not.
func TestAPIAway(t *testing.T) {
	server, _ := faulty(t)
	client, said := impatient(t, Access{Endpoint: server.URL, GracePeriod: 50 * time.Millisecond})

	_, err := client.VMs(t.Context())
	require.NoError(t, err)
	server.Close()

	_, err = client.VMs(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	assert.NotEmpty(t, *said)

	fresh, said := impatient(t, Access{Endpoint: server.URL})
	_, err = fresh.VMs(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	assert.Empty(t, *said)
}

// TestSessionExpires: a ticket that is good no more is renewed; a password that is wrong is tried no longer.
func TestSessionExpires(t *testing.T) {
	logins, valid := 0, ""
	right := true

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api2/json/access/ticket" {
			if !right {
				w.WriteHeader(http.StatusUnauthorized)

				return
			}

			logins++
			valid = strings.Repeat("x", logins)
			_, _ = w.Write([]byte(`{"data":{"ticket":"` + valid + `","CSRFPreventionToken":"y"}}`))

			return
		}

		if cookie, err := r.Cookie("PVEAuthCookie"); err != nil || cookie.Value != valid {
			w.WriteHeader(http.StatusUnauthorized)

			return
		}

		_, _ = w.Write([]byte(nothing))
	}))
	t.Cleanup(server.Close)

	client, _ := impatient(t, Access{Endpoint: server.URL, Username: "a@pve", Password: "b"})

	for range 2 {
		_, err := client.VMs(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, logins)
	}

	valid = "expired"
	require.NoError(t, client.MoveToPool(t.Context(), VM{ID: 401}, "prod"))
	assert.Equal(t, 2, logins)

	valid, right = "expired", false
	_, err := client.VMs(t.Context())
	require.ErrorIs(t, err, ErrRefused)
}

// TestLoginIsRepeated: a login with a password outlives what passes, with the password each time, and a wrong one is
// not sent for the grace period.
func TestLoginIsRepeated(t *testing.T) {
	const ticket = `{"data":{"ticket":"x","CSRFPreventionToken":"y"}}`

	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		logins  int32
		refused bool
	}{
		"503":                    {answer: status(503), logins: 3},
		"429":                    {answer: status(429), logins: 3},
		"a page":                 {answer: text("text/html", "<html>"), logins: 3},
		"half a body that hangs": {answer: half(true), logins: 3},
		"a connection that ends": {answer: reset, logins: 3},
		// As a session that has ended, and then as a password that is wrong.
		"401": {answer: status(401), logins: 2, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var logins, wrong atomic.Int32

			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := r.Cookie("PVEAuthCookie"); r.URL.Path != "/api2/json/access/ticket" {
					if err != nil {
						w.WriteHeader(http.StatusUnauthorized)
					}

					_, _ = w.Write([]byte(nothing))

					return
				}

				if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), `"password":"b"`) {
					wrong.Add(1)
				}

				if logins.Add(1) <= 2 {
					c.answer(w, r)

					return
				}

				_, _ = w.Write([]byte(ticket))
			}))
			t.Cleanup(server.Close)

			client, _ := impatient(t, Access{Endpoint: server.URL, Username: "a@pve", Password: "b"})
			_, err := client.VMs(t.Context())

			if c.refused {
				require.ErrorIs(t, err, ErrRefused)
			} else {
				require.NoError(t, err)
			}

			assert.Equal(t, c.logins, logins.Load())
			assert.Zero(t, wrong.Load(), "each login has the password")
		})
	}
}
