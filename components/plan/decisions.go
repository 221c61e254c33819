package plan

import (
	"net/netip"
	"strconv"
	"time"

	"go4.org/netipx"

	"talos-proxmox/components/spec"
)

// Ingress is something that may come in to a node.
type Ingress struct {
	// Name tells it from the others.
	Name     string
	Protocol spec.Protocol
	// Ports are none for ICMP.
	Ports []Ports
	From  []netip.Prefix
}

// Ports are the ports from First to Last.
type Ports struct{ First, Last uint16 }

// PlannedK3s is what is decided about a cluster of kind k3s apart from its machines.
type PlannedK3s struct {
	// Version of K3s with a leading v, "v1.34.2+k3s1".
	Version string
	Disable []string
	// ServerArgs and AgentArgs are the operator's, as configured.
	ServerArgs, AgentArgs []string
	// Checksum is the SHA-256 of the binary; empty when none is set.
	Checksum string
	// InstallChecksum is the SHA-256 of the installation script; empty when none is set.
	InstallChecksum string
	// User may log in by SSH with SSHKeys, and with a key pair that is made where GenerateSSHKey says so.
	User           string
	SSHKeys        []string
	GenerateSSHKey bool
	Packages       []string
	Upgrade        bool
	// TokenProvided says that the token comes from the configuration.
	TokenProvided bool
	// IdentityProvided says that the identity comes from the configuration.
	IdentityProvided bool
	// Pods and Services are the networks of pods and services.
	Pods, Services netip.Prefix
	// Snippets is the datastore of user data.
	Snippets string
	// Mirror holds releases of K3s, AptMirror Ubuntu's packages; empty: GitHub, and the sources of the image.
	Mirror, AptMirror string
	// StartTimeout bounds each attempt of a node to start K3s.
	StartTimeout time.Duration
}

// HostAllocation is what the plan puts on one host.
type HostAllocation struct {
	Name string
	// Limited says that the host's capacity is set; without that Capacity and Reserve say nothing.
	Limited           bool
	Capacity, Reserve spec.Resources
	// Used is what all nodes of the plan on this host need.
	Used spec.Resources
	// Slots are the workers that the host has room for next to its control planes, as far as all have the VMSpec of the
	// first pool of workers; -1 without a limit.
	Slots int
}

// Step is one thing that is done, after the ones before it.
type Step struct {
	// Name is short and the same in every plan; What is for people.
	Name, What string
}

// PlannedLoadBalancer gives Services their addresses.
type PlannedLoadBalancer struct {
	spec.LoadBalancer

	// Clients are the networks that may reach the addresses.
	Clients []netip.Prefix

	// Ranges are the addresses.
	Ranges []netipx.IPRange
}

// Mirror stands in for a registry of images.
type Mirror struct {
	Registry string
	// Endpoints are URLs, in the order they are asked.
	Endpoints []string
	Options   spec.RegistryOptions
}

// String is "80" or "30000-32767".
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}

	return strconv.Itoa(int(p.First)) + "-" + strconv.Itoa(int(p.Last))
}
