// Package ranges reads ranges of VMIDs and addresses as the operator writes them, and counts in them.
package ranges

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Proxmox VE accepts VMIDs in this range.
const (
	MinVMID = 100
	MaxVMID = 999_999_999
)

// Interval is first to last, both included.
type Interval[T any] struct{ First, Last T }

// Intervals are the parts of a range as the operator wrote them, in that order.
type Intervals[T any] []Interval[T]

// rangeParts splits "401-449, 460" at its commas and dashes.
func rangeParts(r spec.Range) []Interval[string] {
	var found []Interval[string]

	for part := range strings.SplitSeq(string(r), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}

		found = append(found, Interval[string]{strings.TrimSpace(first), strings.TrimSpace(last)})
	}

	return found
}

// ParseNumbers reads a range of numbers; ok is false when it is none.
func ParseNumbers(r spec.Range) (found Intervals[int], ok bool) {
	for _, part := range rangeParts(r) {
		first, err1 := strconv.Atoi(part.First)
		last, err2 := strconv.Atoi(part.Last)

		if err1 != nil || err2 != nil || first > last {
			return nil, false
		}

		found = append(found, Interval[int]{first, last})
	}

	return found, true
}

// ParseAddresses reads a range of addresses; the end may be only the last number of an IPv4 address, as in
// 10.0.0.11-13.
func ParseAddresses(r spec.Range) (found Intervals[netip.Addr], ok bool) {
	for _, part := range rangeParts(r) {
		first, err := netip.ParseAddr(part.First)
		if err != nil {
			return nil, false
		}

		last, err := netip.ParseAddr(part.Last)
		if err != nil && first.Is4() {
			last, err = netip.ParseAddr(part.First[:strings.LastIndex(part.First, ".")+1] + part.Last)
		}

		if err != nil || first.BitLen() != last.BitLen() || last.Less(first) || first.Zone() != "" || last.Zone() != "" {
			return nil, false
		}

		found = append(found, Interval[netip.Addr]{first, last})
	}

	return found, true
}

// VMIDCount is the size of a span of VMIDs.
func VMIDCount(s Interval[int]) uint64 { return uint64(s.Last - s.First + 1) } //nolint:gosec // first is not above last

// VMIDAt is a VMID of a span, counted from 0.
func VMIDAt(s Interval[int], i uint64) int { return s.First + int(i) } //nolint:gosec // i is below the count

// AddressCount is the size of a span of addresses, at most 2^63.
func AddressCount(s Interval[netip.Addr]) uint64 {
	hi1, lo1 := halves(s.First)
	hi2, lo2 := halves(s.Last)

	lo, borrow := bits.Sub64(lo2, lo1, 0)
	if hi, _ := bits.Sub64(hi2, hi1, borrow); hi > 0 || lo >= 1<<63-1 {
		return 1 << 63
	}

	return lo + 1
}

// AddressAt is an address of a span, counted from 0.
func AddressAt(s Interval[netip.Addr], i uint64) netip.Addr {
	hi, lo := halves(s.First)
	lo, carry := bits.Add64(lo, i, 0)

	var b [16]byte

	binary.BigEndian.PutUint64(b[:8], hi+carry)
	binary.BigEndian.PutUint64(b[8:], lo)

	a := netip.AddrFrom16(b)
	if s.First.Is4() {
		a = a.Unmap()
	}

	return a
}

func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()

	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// Room is how many values the spans hold, at most 2^63.
func (ss Intervals[T]) Room(size func(Interval[T]) uint64) uint64 {
	var sum uint64
	for _, s := range ss {
		sum = min(sum+size(s), 1<<63)
	}

	return sum
}

// Spans are the parts for who reads the plan.
func (ss Intervals[T]) Spans() []plan.Span[T] {
	var all []plan.Span[T]
	for _, s := range ss {
		all = append(all, plan.Span[T]{First: s.First, Last: s.Last})
	}

	return all
}

// Nth is the value of ordinal n, which counts from 1; ok is false when there are not so many.
func (ss Intervals[T]) Nth(n int, size func(Interval[T]) uint64, at func(Interval[T], uint64) T) (value T, ok bool) {
	i := uint64(n - 1) //nolint:gosec // ordinals are above zero

	for _, s := range ss {
		c := size(s)
		if i < c {
			return at(s, i), true
		}

		i -= c
	}

	return value, false
}

// String is "401", or "401-449".
func (s Interval[T]) String() string {
	first, last := fmt.Sprint(s.First), fmt.Sprint(s.Last)
	if first == last {
		return first
	}

	return first + "-" + last
}
