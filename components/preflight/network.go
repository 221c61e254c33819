package preflight

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/factoryapi"
)

// Network is what is asked of the network of the nodes; Dialer answers it.
type Network interface {
	// Listening returns the port on which a machine listens at an address; 0 when none seems to.
	Listening(ctx context.Context, address netip.Addr) int
	// Resolves says that a host name has an address.
	Resolves(ctx context.Context, host string) bool
	// Source is the address from which this machine reaches another; invalid when that is not known.
	Source(ctx context.Context, to netip.Addr) netip.Addr
	// Extensions are the names of the extensions that an Image Factory has for a version of Talos.
	Extensions(ctx context.Context, factory, talos string) ([]string, error)
}

// Dialer tries to connect to what a node would have: the APIs of Talos and of Kubernetes, and SSH.
type Dialer struct{}

// dialTimeout bounds a connection: in a network where a machine may be in the way, it answers at once.
const dialTimeout = time.Second

// Listening implements Network. A connection that is refused does not count: a firewall may have refused it.
func (Dialer) Listening(ctx context.Context, address netip.Addr) int {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()

	ports := []int{constants.ApidPort, constants.DefaultControlPlanePort}
	if !address.IsLoopback() {
		// The SSH server of this very machine answers at each of its loopback addresses.
		ports = append(ports, 22)
	}

	answers := make([]bool, len(ports))

	var dialed sync.WaitGroup
	for i, port := range ports {
		dialed.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(port)))
			if err == nil {
				answers[i] = conn.Close() == nil
			}
		})
	}

	dialed.Wait()

	for i, port := range ports {
		if answers[i] {
			return port
		}
	}

	return 0
}

// resolveTimeout bounds the look-up of a name, which a resolver that does not answer draws out.
const resolveTimeout = 5 * time.Second

// Resolves implements Network.
func (Dialer) Resolves(ctx context.Context, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()

	found, err := net.DefaultResolver.LookupHost(ctx, host)

	return err == nil && len(found) > 0
}

// Source implements Network. A UDP socket that is connected sends nothing: the system chooses the route.
func (Dialer) Source(ctx context.Context, to netip.Addr) netip.Addr {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(to.String(), strconv.Itoa(constants.ApidPort)))
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()

	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}

	return local.Addr().Unmap().WithZone("")
}

// Extensions implements Network.
func (Dialer) Extensions(ctx context.Context, factory, talos string) ([]string, error) {
	return factoryapi.Extensions(ctx, factory, talos)
}
