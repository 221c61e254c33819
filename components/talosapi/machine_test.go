package talosapi

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"strconv"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// TestUnconfigured: a machine in maintenance mode speaks to everybody, and says that it does next to nothing. One that
// was configured wants to see a certificate first.
func TestUnconfigured(t *testing.T) {
	for name, c := range map[string]struct {
		asks tls.ClientAuthType
		want bool
	}{
		"in maintenance mode": {tls.NoClientCert, true},
		"configured":          {tls.RequireAnyClientCert, false},
	} {
		t.Run(name, func(t *testing.T) {
			// It has a certificate to show.
			shown := httptest.NewTLSServer(nil)
			defer shown.Close()

			server := grpc.NewServer(grpc.Creds(
				credentials.NewTLS(&tls.Config{Certificates: shown.TLS.Certificates, ClientAuth: c.asks})))
			machineapi.RegisterMachineServiceServer(server, machineapi.UnimplementedMachineServiceServer{})

			listener := listen(t)
			defer server.Stop()

			go server.Serve(listener) //nolint:errcheck // it ends with the test

			host, _, err := net.SplitHostPort(listener.Addr().String())
			require.NoError(t, err)
			assert.Equal(t, c.want, Unconfigured(t.Context(), Target{Name: "node", Address: host}))
			assert.Equal(t, !c.want, Founded(t.Context(), []Target{{Name: "node", Address: host}}, Credentials{}))
		})
	}

	t.Run("no answer", func(t *testing.T) {
		listener := listen(t)
		host, _, err := net.SplitHostPort(listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		assert.False(t, Unconfigured(t.Context(), Target{Name: "node", Address: host}))
	})
}

// listen takes an address on loopback where the port is unused of the Talos API.
func listen(t *testing.T) net.Listener {
	t.Helper()

	for n := range 250 {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.77."+strconv.Itoa(n+1), strconv.Itoa(constants.ApidPort)))
		if err == nil {
			return listener
		}
	}

	t.Fatal("every address is taken")

	return nil
}
