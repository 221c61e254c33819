package plan

import (
	"net/netip"

	"github.com/blang/semver/v4"
)

// K3sPods are the addresses of pods, K3sServices those of services, K3s' defaults.
var (
	K3sPods     = netip.MustParsePrefix("10.42.0.0/16")
	K3sServices = netip.MustParsePrefix("10.43.0.0/16")
)

// UbuntuOfK3s are the releases of Ubuntu that K3s nodes are installed on.
func UbuntuOfK3s() []string { return []string{"22.04", "24.04"} }

// The networks that K3s gives pods and services where its nodes have addresses of IPv6 (K3s: GetDefaultAddresses).
const (
	K3sPodsIPv6     = "fd00:42::/56"
	K3sServicesIPv6 = "fd00:43::/112"
)

// GatewayAPI is the version of the Gateway API whose definitions the addon installs, those of its standard channel.
const GatewayAPI = "1.4.1"

// What Talos asks of a control plane (Talos: System Requirements).
const (
	// LeastCores are processors.
	LeastCores = 2
	// LeastMemoryMiB is memory.
	LeastMemoryMiB = 2048
	// LeastDiskGiB is the size of the system disk.
	LeastDiskGiB = 10
)

// LeastK3sServerCores are the processors that K3s asks of a server (K3s: Requirements). Agents need one.
const LeastK3sServerCores = 2

// The major versions of Proxmox VE that are supported.
const (
	// OldestProxmox is the first.
	OldestProxmox = 8
	// NewestProxmox is the last.
	NewestProxmox = 9
)

// Minor is the second number of a version, 0 of what is no version.
func Minor(version string) uint64 {
	v, _ := semver.ParseTolerant(version) // the zero version with an error

	return v.Minor
}

// Major is the first number of a version, 0 of what is no version.
func Major(version string) uint64 {
	v, _ := semver.ParseTolerant(version) // the zero version with an error

	return v.Major
}

// OnlyMajor is the major version of Talos, Kubernetes, K3s and Cilium; what is known of minor versions is of this one.
const OnlyMajor = 1

// NewestContract is the newest version contract that nodes are configured with, a minor version of Talos: the Talos
// provider of the SDK holds Talos' library of 1.12, and takes no documents that came later. Later versions of Talos
// take the settings of 1.12.
const NewestContract = 12

// The minor versions that are supported, of version 1; stacks/docs/support-matrix.md lists them. The newest Talos is
// the newest that its library knows.
const (
	// OldestTalos is the first of Talos.
	OldestTalos = 8
	// NewestTalos is the last.
	NewestTalos = 14
	// OldestK3s is the first of K3s.
	OldestK3s = 28
)
