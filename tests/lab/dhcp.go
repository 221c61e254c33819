package lab

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Range is a stretch of addresses, the first and the last included. The zero value is empty.
type Range struct{ From, To netip.Addr }

// leases is the DHCP server: what it has reserved, and what it gives to those that come without a reservation. Who came
// once keeps his address.
type leases struct {
	free Range

	mu    sync.Mutex
	byMAC map[string]netip.Addr
}

func (l *leases) reserve(reservations map[string]netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.byMAC == nil {
		l.byMAC = map[string]netip.Addr{}
	}

	for mac, addr := range maps.All(reservations) {
		l.byMAC[strings.ToUpper(mac)] = addr
	}
}

func (l *leases) find(mac string) (netip.Addr, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	mac = strings.ToUpper(mac)

	if addr, known := l.byMAC[mac]; known {
		return addr, addr.IsValid()
	}

	taken := slices.Collect(maps.Values(l.byMAC))

	for a := l.free.From; a.IsValid() && !l.free.To.Less(a); a = a.Next() {
		if !slices.Contains(taken, a) {
			l.byMAC[mac] = a

			return a, true
		}
	}

	return netip.Addr{}, false
}
