package kubeapi

import (
	"net/http"
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
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "48")
		_, _ = w.Write([]byte(good[:20]))
		_ = http.NewResponseController(w).Flush()

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
