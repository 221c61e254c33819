package generate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"talos-proxmox/components/proxmoxapi"
)

// writer carries what is known while the file is written.
type writer struct {
	options  Options
	machines []*machine
	bundle   *secrets.Bundle
	mappings map[string][]proxmoxapi.Mapped

	cluster       string
	network       netip.Prefix
	heldVMIDs     map[int]bool
	heldAddresses map[netip.Addr]bool
	// patches are what the configuration of a node has in addition to what the program renders.
	patches map[*machine]string
	// secret says of which nodes the patches may hold a secret.
	secret map[*machine]bool
	notes  []string
	// unlike is what cannot be described.
	unlike []string
}

func (w *writer) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

// templates says whether the VMs look like clones: they have no drive for an ISO file. What of them is a template's is
// not looked at any more.
func (w *writer) templates() bool { return !w.machines[0].hasCDROM() }
