package planner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// mac derives a locally administered unicast address from cluster and node name, so that a DHCP reservation can be made
// before the VM exists and a VM made again keeps its lease. Further interfaces of the node are told apart by their
// index.
func mac(cluster, node string, index int) string {
	seed := make([]byte, 0, 128)
	seed = append(append(append(seed, cluster...), 0), node...)

	if index > 0 {
		seed = strconv.AppendInt(append(seed, 0), int64(index), 10)
	}

	h := sha256.Sum256(seed)
	h[0] = h[0]&^0b11 | 0b10

	var digits [12]byte

	hex.Encode(digits[:], h[:6])

	b := make([]byte, 0, len("00:00:00:00:00:00"))

	for i, d := range digits {
		if i > 0 && i%2 == 0 {
			b = append(b, ':')
		}

		if d >= 'a' {
			d -= 'a' - 'A'
		}

		b = append(b, d)
	}

	return string(b)
}

// parseMAC reads a MAC address that a VM may have and writes it as Proxmox VE does.
func parseMAC(text string) (string, error) {
	hw, err := net.ParseMAC(text)

	switch {
	case err != nil || len(hw) != 6:
		return "", fmt.Errorf("must be a MAC address")
	case hw[0]&1 == 1:
		return "", fmt.Errorf("must be the address of one interface, not of a group: its first byte must be even")
	default:
		return strings.ToUpper(hw.String()), nil
	}
}
