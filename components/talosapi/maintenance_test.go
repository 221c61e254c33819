package talosapi

import (
	"context"
	"net"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// waiting is a machine in maintenance mode.
type waiting struct {
	machineapi.UnimplementedMachineServiceServer

	refuses    error
	received   atomic.Int32
	secureBoot *bool // nil: it does not say
}

func (w *waiting) ApplyConfiguration(
	context.Context, *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	w.received.Add(1)

	return &machineapi.ApplyConfigurationResponse{}, w.refuses
}

// on serves a machine until the returned server is stopped.
func (w *waiting) on(t *testing.T, listener net.Listener, uuid string) *grpc.Server {
	t.Helper()

	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()

	shown := hardware.NewSystemInformation(hardware.SystemInformationID)
	shown.TypedSpec().UUID = uuid

	resources := state.WrapCore(namespaced.NewState(inmem.Build))
	require.NoError(t, resources.Create(t.Context(), shown))

	if w.secureBoot != nil {
		booted := runtime.NewSecurityStateSpec(runtime.NamespaceName)
		booted.TypedSpec().SecureBoot = *w.secureBoot
		require.NoError(t, resources.Create(t.Context(), booted))
	}

	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate.TLS.Certificates[0])))
	machineapi.RegisterMachineServiceServer(s, w)
	cosi.RegisterStateServer(s, server.NewState(resources))

	go s.Serve(listener) //nolint:errcheck // it ends with the test

	t.Cleanup(s.Stop)

	return s
}

// TestMaintenance: what a machine has said of itself holds on the connection on which it has said it. Another machine
// that takes the address meanwhile is sent nothing.
func TestMaintenance(t *testing.T) {
	listener := listen(t)
	address := listener.Addr().String()
	host, _, err := net.SplitHostPort(address)
	require.NoError(t, err)

	ours, other := &waiting{}, &waiting{}
	target := Target{Name: "node", Address: host}
	first := ours.on(t, listener, "ours")

	m, err := ConnectMaintenance(t.Context(), target)
	require.NoError(t, err)
	assert.Equal(t, "ours", m.UUID)
	require.NoError(t, m.Apply(t.Context(), []byte("keys")))
	assert.EqualValues(t, 1, ours.received.Load())
	m.Close()

	m, err = ConnectMaintenance(t.Context(), target)
	require.NoError(t, err)

	defer m.Close()

	ours.refuses = status.Error(codes.InvalidArgument, "no such disk")

	require.ErrorAs(t, m.Apply(t.Context(), nil), new(RejectedError))

	first.Stop()

	listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	other.on(t, listener, "other")

	for range 3 {
		err = m.Apply(t.Context(), []byte("keys"))
		require.Error(t, err)
		assert.NotErrorAs(t, err, new(RejectedError))
	}

	assert.Zero(t, other.received.Load())
}

// TestWaitMachine: only the machine of the target is waited for, and another one is not sent anything.
func TestWaitMachine(t *testing.T) {
	listener := listen(t)
	host, _, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)

	machine := &waiting{}
	machine.on(t, listener, "ours")

	wanted := func(uuid string) error {
		return WaitMachine(t.Context(), Target{Name: "node", Address: host, UUID: uuid}, Credentials{}, time.Minute,
			func(string) {})
	}

	require.NoError(t, wanted("OURS"))
	require.ErrorContains(t, wanted("other"), "another machine answers at "+host+`: it shows SMBIOS UUID "ours", and the VM `+
		"of node has other. Nothing was sent to it")
	assert.Zero(t, machine.received.Load())
}

// TestMaintenanceSecureBoot: a machine that waits says how it was booted, or nothing.
func TestMaintenanceSecureBoot(t *testing.T) {
	for name, want := range map[string]*bool{"with": new(true), "without": new(false), "it does not say": nil} {
		t.Run(name, func(t *testing.T) {
			listener := listen(t)
			host, _, err := net.SplitHostPort(listener.Addr().String())
			require.NoError(t, err)

			(&waiting{secureBoot: want}).on(t, listener, "ours")

			m, err := ConnectMaintenance(t.Context(), Target{Name: "node", Address: host})
			require.NoError(t, err)

			defer m.Close()

			assert.Equal(t, want, m.SecureBoot)
		})
	}
}
