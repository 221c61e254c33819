package plan

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/spec"
)

// Proxmox VE accepts VMIDs in this range.
const (
	minVMID = 100
	maxVMID = 999_999_999
)

// interval is first to last, both included.
type interval[T any] struct{ first, last T }

// intervals are the parts of a range as the operator wrote them, in that order.
type intervals[T any] []interval[T]

// rangeParts splits "401-449, 460" at its commas and dashes.
func rangeParts(r spec.Range) []interval[string] {
	var found []interval[string]

	for part := range strings.SplitSeq(string(r), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}

		found = append(found, interval[string]{strings.TrimSpace(first), strings.TrimSpace(last)})
	}

	return found
}

// parseNumbers reads a range of numbers; ok is false when it is none.
func parseNumbers(r spec.Range) (found intervals[int], ok bool) {
	for _, part := range rangeParts(r) {
		first, err1 := strconv.Atoi(part.first)
		last, err2 := strconv.Atoi(part.last)

		if err1 != nil || err2 != nil || first > last {
			return nil, false
		}

		found = append(found, interval[int]{first, last})
	}

	return found, true
}

// parseAddresses reads a range of addresses; the end may be only the last number of an IPv4 address, as in
// 10.0.0.11-13.
func parseAddresses(r spec.Range) (found intervals[netip.Addr], ok bool) {
	for _, part := range rangeParts(r) {
		first, err := netip.ParseAddr(part.first)
		if err != nil {
			return nil, false
		}

		last, err := netip.ParseAddr(part.last)
		if err != nil && first.Is4() {
			last, err = netip.ParseAddr(part.first[:strings.LastIndex(part.first, ".")+1] + part.last)
		}

		if err != nil || first.BitLen() != last.BitLen() || last.Less(first) || first.Zone() != "" || last.Zone() != "" {
			return nil, false
		}

		found = append(found, interval[netip.Addr]{first, last})
	}

	return found, true
}

// size of a span of VMIDs.
func vmidCount(s interval[int]) uint64 { return uint64(s.last - s.first + 1) } //nolint:gosec // first is not above last

func vmidAt(s interval[int], i uint64) int { return s.first + int(i) } //nolint:gosec // i is below the count

// addressCount is the size of a span of addresses, at most 2^63.
func addressCount(s interval[netip.Addr]) uint64 {
	hi1, lo1 := halves(s.first)
	hi2, lo2 := halves(s.last)

	lo, borrow := bits.Sub64(lo2, lo1, 0)
	if hi, _ := bits.Sub64(hi2, hi1, borrow); hi > 0 || lo >= 1<<63-1 {
		return 1 << 63
	}

	return lo + 1
}

func addressAt(s interval[netip.Addr], i uint64) netip.Addr {
	hi, lo := halves(s.first)
	lo, carry := bits.Add64(lo, i, 0)

	var b [16]byte

	binary.BigEndian.PutUint64(b[:8], hi+carry)
	binary.BigEndian.PutUint64(b[8:], lo)

	a := netip.AddrFrom16(b)
	if s.first.Is4() {
		a = a.Unmap()
	}

	return a
}

func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()

	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// room is how many values the spans hold, at most 2^63.
func (ss intervals[T]) room(size func(interval[T]) uint64) uint64 {
	var sum uint64
	for _, s := range ss {
		sum = min(sum+size(s), 1<<63)
	}

	return sum
}

// spans are the parts for who reads the plan.
func (ss intervals[T]) spans() []Span[T] {
	var all []Span[T]
	for _, s := range ss {
		all = append(all, Span[T]{s.first, s.last})
	}

	return all
}

// nth is the value of ordinal n, which counts from 1; ok is false when there are not so many.
func (ss intervals[T]) nth(n int, size func(interval[T]) uint64, at func(interval[T], uint64) T) (value T, ok bool) {
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

func (s interval[T]) String() string {
	first, last := fmt.Sprint(s.first), fmt.Sprint(s.last)
	if first == last {
		return first
	}

	return first + "-" + last
}

func allOf[T any](all []T, has func(T) bool) bool {
	return !slices.ContainsFunc(all, func(one T) bool { return !has(one) })
}
