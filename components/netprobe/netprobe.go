// Package netprobe finds out whether a machine has an address.
package netprobe

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// timeout bounds a connection: in a network where a machine may be in the way, it answers at once.
const timeout = time.Second

// Listening returns the port on which a machine listens at an address, of those that a node would have: the APIs of
// Talos and of Kubernetes, and SSH. It is 0 when none seems to. A connection that is refused does not count: a firewall
// may have refused it.
func Listening(ctx context.Context, address netip.Addr) int {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
