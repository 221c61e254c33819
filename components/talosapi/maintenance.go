package talosapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"

	"talos-proxmox/components/wait"
)

// Maintenance is one connection to a machine that waits for its first configuration. Its certificate proves nothing, so
// what the machine has said holds on this connection only: when it breaks, there is no second one.
type Maintenance struct {
	// UUID is the SMBIOS UUID that the machine shows.
	UUID string
	// SecureBoot says whether it was booted with SecureBoot; nil: it is not known.
	SecureBoot *bool

	name string
	api  *client.Client
}

// errOneConnection keeps gRPC from connecting again by itself.
var errOneConnection = errors.New("the connection to the machine in maintenance mode is lost")

// ConnectMaintenance connects to a machine in maintenance mode and asks which one it is. A node that has a
// configuration ends the connection: it asks for a certificate.
func ConnectMaintenance(ctx context.Context, t Target) (*Maintenance, error) {
	var dialed atomic.Bool

	once := func(ctx context.Context, address string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, errOneConnection
		}

		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}

	api, err := client.New(ctx, client.WithEndpoints(t.Address), client.WithGRPCDialOptions(grpc.WithContextDialer(once)),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true})) //nolint:gosec // it has no identity yet
	if err != nil {
		return nil, err
	}

	uuid, err := machineUUID(ctx, api)
	if err != nil {
		return nil, errors.Join(errors.New(brief(err)), api.Close())
	}

	secure, err := secureBoot(ctx, api)
	if err != nil {
		return nil, errors.Join(errors.New(brief(err)), api.Close())
	}

	return &Maintenance{UUID: uuid, SecureBoot: secure, name: t.Name, api: api}, nil
}

// Apply gives the machine its first configuration.
func (m *Maintenance) Apply(ctx context.Context, configuration []byte) error {
	_, err := m.api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: configuration, Mode: machineapi.ApplyConfigurationRequest_AUTO,
	})

	return notTaken(m.name, err)
}

// Close ends the connection.
func (m *Maintenance) Close() { _ = m.api.Close() } // nothing is left to be written

// WaitMachine waits until the machine of a target answers at its address: one that waits for its first configuration,
// or the node that the credentials are of. Another machine is an error.
func WaitMachine(ctx context.Context, t Target, c Credentials, bound time.Duration, progress wait.Reporter) error {
	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		why := Answers(ctx, t, c)
		if why == nil {
			return nil
		}

		machine, err := ConnectMaintenance(ctx, t)
		if err != nil {
			return wait.For("%s to answer at %s (%v)", t.Name, t.Address, why)
		}
		defer machine.Close()

		if !strings.EqualFold(machine.UUID, t.UUID) {
			return OtherMachineError(t, "the VM of "+t.Name, machine.UUID)
		}

		return nil
	})
}

// OtherMachineError is what is said of a machine in maintenance mode at a node's address that is not the node's VM.
func OtherMachineError(t Target, vm, shown string) error {
	return fmt.Errorf("another machine answers at %s: it shows SMBIOS UUID %q, and %s has %s. Nothing was sent to "+
		"it. Find what has the address (a VM or a machine with the same address, an old DHCP lease), take it off the "+
		"network, then run 'pulumi up' again", t.Address, shown, vm, t.UUID)
}
