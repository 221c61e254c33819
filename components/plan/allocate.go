package plan

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Proxmox VE accepts VMIDs in this range.
const (
	minVMID = 100
	maxVMID = 999_999_999
)

// First VMIDs of the pools that state none.
const (
	firstControlVMID = 401
	firstWorkerVMID  = 501
	defaultVMIDs     = 99
)

// vmidSpan is first to last, both included; the zero value is empty.
type vmidSpan struct{ first, last int }

func (s vmidSpan) len() int {
	if s.first == 0 {
		return 0
	}

	return s.last - s.first + 1
}

func (s vmidSpan) String() string { return fmt.Sprintf("%d-%d", s.first, s.last) }

// vmidRange is the span of VMIDs that belong to a pool, whether nodes use them yet or not.
func (r *resolver) vmidRange(path string, pool Pool) vmidSpan {
	path += ".vmids"

	if pool.VMIDs == "" {
		first := firstWorkerVMID
		if pool.Role == ControlPlane {
			first = firstControlVMID
		}

		for name, other := range r.spec.Pools {
			if other.Role == pool.Role && other.VMIDs == "" && "pools."+name+".vmids" != path {
				r.problems.Add(path, "is required: only one pool of each role may leave it out", "",
					fmt.Sprintf("state a range, for example %d-%d", first+100, first+100+defaultVMIDs-1))

				return vmidSpan{}
			}
		}

		span := vmidSpan{first, first + defaultVMIDs - 1}
		r.checkRoom(path, span.len(), pool.Count, "VMID", span.String())

		return span
	}

	lo, hi, _ := strings.Cut(string(pool.VMIDs), "-")
	if hi == "" {
		hi = lo
	}

	first, err1 := strconv.Atoi(strings.TrimSpace(lo))
	last, err2 := strconv.Atoi(strings.TrimSpace(hi))

	if err1 != nil || err2 != nil || first > last {
		r.problems.Add(path, "must be a VMID or a range of VMIDs", string(pool.VMIDs), "write it like 401-449")

		return vmidSpan{}
	}

	if first < minVMID || last > maxVMID {
		r.problems.Add(path, fmt.Sprintf("must lie in %d-%d, which is what Proxmox VE accepts", minVMID, maxVMID),
			string(pool.VMIDs), "choose a range inside it")

		return vmidSpan{}
	}

	span := vmidSpan{first, last}
	r.checkRoom(path, span.len(), pool.Count, "VMID", string(pool.VMIDs))

	return span
}

// addressRange returns the first Count addresses of the pool's range.
func (r *resolver) addressRange(path string, pool Pool) []netip.Addr {
	path += ".addresses"

	if pool.Addresses == "" {
		if pool.Count > 0 {
			r.problems.Add(path, fmt.Sprintf("is required with addressing %q", r.spec.Network.Addressing), "",
				"state one address per node, for example 10.0.0.11-10.0.0.13")
		}

		return nil
	}

	lo, hi, _ := strings.Cut(string(pool.Addresses), "-")
	if hi == "" {
		hi = lo
	}

	first, err1 := netip.ParseAddr(strings.TrimSpace(lo))
	last, err2 := netip.ParseAddr(strings.TrimSpace(hi))

	if err1 != nil || err2 != nil || first.Is4() != last.Is4() || last.Less(first) {
		r.problems.Add(path, "must be an address or a range of addresses", string(pool.Addresses),
			"write it like 10.0.0.11-10.0.0.13")

		return nil
	}

	var found []netip.Addr
	for a := first; len(found) < pool.Count && !last.Less(a) && a.IsValid(); a = a.Next() {
		found = append(found, a)
	}

	r.checkRoom(path, len(found), pool.Count, "address", string(pool.Addresses))

	return found
}

func (r *resolver) checkRoom(path string, have, want int, noun, value string) {
	if have < want {
		r.problems.Add(path, fmt.Sprintf("has room for %d of the pool's %s", have, count(want, "node")), value,
			"make the range longer or the pool smaller")
	}
}

// nodeName fills in a name pattern.
func nodeName(pattern, cluster, pool string, n int) string {
	setDefault(&pattern, "{cluster}-{pool}-{n}")

	return strings.NewReplacer(
		"{cluster}", cluster,
		"{pool}", pool,
		"{n}", strconv.Itoa(n),
		"{nn}", fmt.Sprintf("%02d", n),
		"{nnn}", fmt.Sprintf("%03d", n),
	).Replace(pattern)
}

// mac derives a locally administered unicast address from cluster and node name, so that a DHCP reservation can be made
// before the VM exists and a VM made again keeps its lease.
func mac(cluster, node string) string {
	h := sha256.Sum256([]byte(cluster + "\x00" + node))
	h[0] = h[0]&^0b11 | 0b10

	return fmt.Sprintf("%02X:%02X:%02X:%02X:%02X:%02X", h[0], h[1], h[2], h[3], h[4], h[5])
}
