package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
)

// apiPort is Proxmox VE's.
const apiPort = 8006

// Reservation is a network on loopback that belongs to one world. Worlds run side by side in many processes, so each block
// 127.N.0.0/16 is guarded by a listener on its last address but one, port 8006, which is also where the world's Proxmox VE answers.
type Reservation struct {
	network netip.Prefix

	mu     sync.Mutex
	guards []net.Listener
	taken  bool
}

const (
	blockBits  = 16
	firstBlock = 2
	lastBlock  = 254
)

// ReserveNetwork reserves a loopback network that a stack's network of the given prefix length fits into. A network
// longer than /16 gets a whole /16; one of /8 or shorter has no room on loopback.
func ReserveNetwork(bits int) (*Reservation, error) {
	if bits <= 8 || bits > 32 {
		return nil, fmt.Errorf("a network of prefix length %d cannot be mapped onto loopback: 127.0.0.0/8 itself is a /8, "+
			"so it takes /9 or longer", bits)
	}

	bits = min(bits, blockBits)
	blocks := 1 << (blockBits - bits)

	var candidates []int

	for n := 0; n < 256; n += blocks {
		if n >= firstBlock && (n <= lastBlock || blocks > 1) && n+blocks <= 256 {
			candidates = append(candidates, n)
		}
	}

	// Starting anywhere keeps processes that start together out of each other's way.
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })

	var last error

	for _, n := range candidates {
		guards, err := guard(n, blocks)
		if err == nil {
			network := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(n)}), bits)

			return &Reservation{network: network, guards: guards}, nil
		}

		last = err
	}

	return nil, fmt.Errorf("no loopback network of prefix length %d is free: %w", bits, last)
}

// guard takes all blocks or none.
func guard(first, blocks int) ([]net.Listener, error) {
	var guards []net.Listener

	for n := first; n < first+blocks; n++ {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.%d.255.254:%d", n, apiPort))
		if err != nil {
			for _, g := range guards {
				_ = g.Close()
			}

			return nil, err
		}

		guards = append(guards, l)
	}

	return guards, nil
}

// Network is the reserved network.
func (r *Reservation) Network() netip.Prefix { return r.network }

// Map returns where a stack's network lies in the reserved one: the same prefix length, the low bits kept. 10.0.0.0/16 becomes
// 127.N.0.0/16 and 192.168.20.0/24 becomes 127.N.20.0/24. An invalid prefix, or one that does not fit, comes back invalid.
func (r *Reservation) Map(p netip.Prefix) netip.Prefix {
	p = p.Masked()
	if !p.IsValid() || !p.Addr().Is4() || p.Bits() < r.network.Bits() {
		return netip.Prefix{}
	}

	return netip.PrefixFrom(r.MapAddr(p.Addr()), p.Bits())
}

// MapAddr returns where an address of a stack lies in the reserved network. Two addresses of one stack's network never
// fall together. An address that is not IPv4 comes back invalid.
func (r *Reservation) MapAddr(a netip.Addr) netip.Addr {
	if !a.Is4() {
		return netip.Addr{}
	}

	base, low := r.network.Addr().As4(), a.As4()

	for i := range 4 {
		keep := byte(0)

		for bit := range 8 {
			if i*8+bit >= r.network.Bits() {
				keep |= 1 << (7 - bit)
			}
		}

		base[i] |= low[i] & keep
	}

	return netip.AddrFrom4(base)
}

// server is the address that the world's own servers have.
func (r *Reservation) server() netip.Addr {
	first := r.network.Addr().As4()

	return netip.AddrFrom4([4]byte{first[0], first[1], 255, 254})
}

// listener hands out the guard that the world's Proxmox VE answers on, once.
func (r *Reservation) listener() (net.Listener, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.taken || len(r.guards) == 0 {
		return nil, errors.New("the reserved network belongs to another lab, or has been given back")
	}

	r.taken = true

	return r.guards[0], nil
}

// Close gives the network back. A lab that was started on it does so itself.
func (r *Reservation) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	var all []error

	for _, g := range r.guards {
		if err := g.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			all = append(all, err)
		}
	}

	r.guards = nil

	return errors.Join(all...)
}
