package machineconfig

import (
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/spec"
)

// requirement is what Talos lets a patch take away and this cluster cannot do without.
type requirement struct {
	rule   string
	broken func(talosconfig.Provider) bool
	// unpatched is the problem where no patch is at fault.
	unpatched spec.Problem
}
