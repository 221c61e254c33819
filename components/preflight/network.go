package preflight

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"talos-proxmox/components/factoryapi"
)

// Network is what is asked of the network of the nodes; Dialer answers it.
type Network interface {
	// Listening returns the port on which a machine listens at an address; 0 when none seems to.
	Listening(ctx context.Context, address netip.Addr) int
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

	ports := []int{50000, 6443}
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

// Extensions implements Network.
func (Dialer) Extensions(ctx context.Context, factory, talos string) ([]string, error) {
	return factoryapi.Extensions(ctx, factory, talos)
}
