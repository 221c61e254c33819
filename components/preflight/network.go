package preflight

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/factoryapi"
	"talos-proxmox/components/netprobe"
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

// Listening implements Network.
func (Dialer) Listening(ctx context.Context, address netip.Addr) int {
	return netprobe.Listening(ctx, address)
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
