// Package hosts checks the Proxmox VE hosts and their datacenter: whether they answer, and have what new nodes need.
package hosts

import "talos-proxmox/components/preflight/checks"

// Checker checks the hosts of a plan. An error of its checks says that Proxmox VE did not answer, or refused.
type Checker struct{ *checks.Checker }
