// Package export writes the contract in the forms that other tools read. Everything in it is a function of the
// contract.
package export

import (
	"errors"
	"strings"

	"talos-proxmox/stacks/contract"
)

// Talosctl writes the commands that tell talosctl of the cluster's nodes: lines for a shell. Nodes whose address is not
// known are named in a comment.
func Talosctl(c *contract.Contract) (string, error) {
	if c.Kind != "talos" {
		return "", errors.New("cluster " + c.Cluster + " is of kind " + c.Kind +
			": its nodes do not run Talos, and talosctl has nothing to talk to")
	}

	var nodes, unknown []string

	for _, n := range c.BootstrapNodes.All() {
		if n.IP == nil {
			unknown = append(unknown, n.Name)
		} else {
			nodes = append(nodes, *n.IP)
		}
	}

	if len(c.ControlPlaneEndpoints) == 0 {
		return "", errors.New("no address of a control plane is known: talosctl has no endpoint to talk to")
	}

	text := "talosctl config endpoint " + strings.Join(c.ControlPlaneEndpoints, " ") + "\n" +
		"talosctl config node " + strings.Join(nodes, " ") + "\n"
	if len(unknown) > 0 {
		text += "# no address is known of " + strings.Join(unknown, ", ") + "\n"
	}

	return text, nil
}
