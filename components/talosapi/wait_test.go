package talosapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWaitAnswering(t *testing.T) {
	// Nothing listens on the Talos port of this address.
	err := WaitAnswering(t.Context(), Target{Name: "n1", Address: "127.255.255.254"}, 2*time.Second, func(string) {})
	assert.EqualError(t, err, "gave up after 2s, waiting for n1 to answer at 127.255.255.254 (connection refused)")
}

func TestWaitEndpoint(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()

	quiet := func(string) {}

	// The certificate of httptest covers 127.0.0.1 and example.com.
	assert.NoError(t, WaitEndpoint(t.Context(), server.URL, time.Second, quiet))

	other := strings.Replace(server.URL, "127.0.0.1", "127.0.0.2", 1)
	err := WaitEndpoint(t.Context(), other, 100*time.Millisecond, quiet)
	assert.ErrorContains(t, err, "gave up after 100ms, waiting for the Kubernetes API to answer at "+other+
		" (connection refused)")

	named := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	err = WaitEndpoint(t.Context(), named, 100*time.Millisecond, quiet)
	assert.ErrorContains(t, err, "gave up after 100ms, waiting for a certificate that covers "+named)
}
