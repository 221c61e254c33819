package proxmoxapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestFailures: nothing that fails is taken for an answer, and what callers must tell apart is told apart.
func TestFailures(t *testing.T) {
	for status, want := range map[int]struct {
		kind error
		said string
	}{
		http.StatusForbidden: {
			ErrRefused,
			"refuses the credentials (GET /nodes/pve/hardware/pci?pci-class-blacklist=): Forbidden",
		},
		http.StatusNotFound: {nil, "answers GET /nodes/pve/hardware/pci?pci-class-blacklist= with: 404 Not Found"},
		http.StatusServiceUnavailable: {
			nil,
			"answers GET /nodes/pve/hardware/pci?pci-class-blacklist= with: 503 Service Unavailable",
		},
		http.StatusNotImplemented: {
			nil,
			"answers GET /nodes/pve/hardware/pci?pci-class-blacklist= with: 501 Not Implemented",
		},
		595: {
			ErrHostUnreachable,
			"cannot reach that host (GET /nodes/pve/hardware/pci?pci-class-blacklist=): 595 status code 595",
		},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(`{"data":null}`))
			}))
			t.Cleanup(server.Close)

			c, err := New(Access{Endpoint: server.URL, Insecure: true, TokenID: "a@pve!b", TokenSecret: "c", Once: true})
			if err != nil {
				t.Fatal(err)
			}

			_, err = c.PCIDevices(t.Context(), "pve")
			if err == nil || err.Error() != "Proxmox VE at "+server.URL+" "+want.said {
				t.Errorf("got %v, want %s", err, want.said)
			}

			for _, kind := range []error{ErrRefused, ErrHostUnreachable, ErrUnreachable, ErrUntrusted} {
				if errors.Is(err, kind) != errors.Is(want.kind, kind) {
					t.Errorf("%v: %v", err, kind)
				}
			}
		})
	}
}

// TestVersion: the first number is read whatever follows it; what has none is not taken for a version.
func TestVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"8.4.1": {"8.4.1", 8}, "7.4-3": {"7.4-3", 7}, "10.0.0~1": {"10.0.0~1", 10}, "": {},
	} {
		t.Run(text, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/api2/json/version" {
					_, _ = w.Write([]byte(`{"data":{"version":"` + text + `","release":"8.4"}}`))
				}
			}))
			t.Cleanup(server.Close)

			c, err := New(Access{Endpoint: server.URL, Insecure: true, TokenID: "a@pve!b", TokenSecret: "c"})
			if err != nil {
				t.Fatal(err)
			}

			if got, err := c.Version(t.Context()); got != want || (err == nil) != (want.Major > 0) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// TestRedirection: the credentials go to the server that they are for, and to no other that it names.
func TestRedirection(t *testing.T) {
	asked := 0
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte(`{"data":{"version":"8.4.1"}}`))
	}))
	t.Cleanup(other.Close)

	to := other.URL
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			_, _ = w.Write([]byte(`{"data":{"version":"8.4.1"}}`))
		} else {
			http.Redirect(w, r, to+"/moved", http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(server.Close)

	c, err := New(Access{Endpoint: server.URL, Insecure: true, TokenID: "a@pve!b", TokenSecret: "c", Once: true})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := c.Version(t.Context()); err == nil || asked > 0 ||
		!strings.Contains(err.Error(), "redirects to "+other.URL+", which is not sent the credentials") {
		t.Errorf("%v, asked %d times", err, asked)
	}

	to = ""
	if v, err := c.Version(t.Context()); err != nil || v.Major != 8 {
		t.Errorf("got %v, %v", v, err)
	}
}
