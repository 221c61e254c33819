package kubeapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFaults: what passes is outlived, whatever it looks like, and nothing is taken for an answer that is none.
func TestFaults(t *testing.T) {
	const good = `{"kind":"NodeList","apiVersion":"v1","items":[]}`

	half := func(w http.ResponseWriter, _ *http.Request) {
		begin(w, good)

		panic(http.ErrAbortHandler)
	}

	for name, c := range map[string]struct {
		answer http.HandlerFunc
		// said is what a fault that does not pass ends with.
		said string
	}{
		"429": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}},
		"503":         {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }},
		"half a body": {answer: half},
		"401": {
			answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			said:   "the server has asked for the client to provide credentials",
		},
		"a page": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			const address = "127.83.9.1"

			var asked atomic.Int32

			serve(t, address, func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1)%2 == 1 {
					c.answer(w, r)

					return
				}

				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(good))
			})

			k, err := New(kubeconfig, address)
			require.NoError(t, err)

			k, err = k.WithRetry(time.Minute, quiet)
			require.NoError(t, err)

			for what, do := range map[string]func() error{
				"a look-up": func() error { _, err := k.Nodes(t.Context()); return err },
				"a deletion": func() error {
					return k.DeleteNode(t.Context(), "a", func(Node) error { return nil })
				},
			} {
				asked.Store(0)

				if err := do(); c.said != "" {
					require.ErrorContains(t, err, c.said, what)
				} else {
					require.NoError(t, err, what)
				}
			}

			assert.Positive(t, asked.Load())
		})
	}
}

// begin writes half of an answer.
func begin(w http.ResponseWriter, whole string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
	_, _ = w.Write([]byte(whole[:len(whole)/2]))
	_ = http.NewResponseController(w).Flush()
}

// TestHeldAnswer: an answer that hangs after its header is waited for as long as one that never begins, and no longer.
func TestHeldAnswer(t *testing.T) {
	const good = `{"kind":"NodeList","apiVersion":"v1","items":[]}`

	var asked atomic.Int32

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			begin(w, good)
			<-r.Context().Done()

			return
		}

		_, _ = w.Write([]byte(good))
	}))
	t.Cleanup(server.Close)

	host := strings.TrimPrefix(server.URL, "http://")
	r := &retry{
		next: http.DefaultTransport, bound: time.Minute, each: 200 * time.Millisecond, hosts: []string{host},
		progress: quiet,
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/nodes", nil)
	require.NoError(t, err)

	reply, err := r.RoundTrip(request)
	require.NoError(t, err)

	text, err := io.ReadAll(reply.Body)
	require.NoError(t, errors.Join(err, reply.Body.Close()))
	assert.Equal(t, good, string(text))
	assert.EqualValues(t, 2, asked.Load())

	r.bound = 100 * time.Millisecond

	asked.Store(0)

	_, err = r.RoundTrip(request)
	require.ErrorContains(t, err, host+" (no answer)")
}
