// Package nodesjson writes and reads nodes.json, a list of a cluster's nodes and the addresses that DHCP has given
// them, and brings the addresses into a stack file.
package nodesjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"talos-proxmox/stacks/contract"
)

// File is a nodes.json.
type File struct {
	// ControlPlaneVIP stands for the control planes: a virtual address, the address of one of them, or a DNS name.
	ControlPlaneVIP string `json:"control_plane_vip"`
	// LoginServer is the URL of a Headscale server; empty without one.
	LoginServer   string `json:"headscale_login_server,omitempty"`
	ControlPlanes []Node `json:"controlplanes"`
	Workers       []Node `json:"workers"`
}

// Node of a nodes.json.
type Node struct {
	Name string `json:"name"`
	// DHCP is the address that the node has from DHCP now; empty when it is not known.
	DHCP string `json:"dhcp,omitempty"`
	// Address is one that the node is to have instead, later; empty mostly.
	Address string `json:"address,omitempty"`
}

// Of is the nodes.json of a cluster. The contract knows of no virtual address and no login server; without a virtual
// address, the first control plane stands for all.
func Of(c *contract.Contract, vip, loginServer string) File {
	f := File{ControlPlaneVIP: vip, LoginServer: loginServer, ControlPlanes: []Node{}, Workers: []Node{}}

	if vip == "" && len(c.ControlPlaneEndpoints) > 0 {
		f.ControlPlaneVIP = c.ControlPlaneEndpoints[0]
	}

	for _, n := range c.BootstrapNodes.All() {
		node := Node{Name: n.Name}
		if n.IP != nil {
			node.DHCP = *n.IP
		}

		if len(f.ControlPlanes) < len(c.BootstrapNodes.ControlPlane) {
			f.ControlPlanes = append(f.ControlPlanes, node)
		} else {
			f.Workers = append(f.Workers, node)
		}
	}

	return f
}

// Encode writes the file.
func (f File) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(f, "", "  ")

	return append(text, '\n'), err
}

// Read reads a nodes.json strictly. The error holds everything that is wrong with it.
func Read(text []byte) (*File, error) {
	var f File

	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()

	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("nodes.json: %w", err)
	}

	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("nodes.json: there is more after the object")
	}

	return &f, f.check()
}

func (f File) check() error {
	var errs []error

	seen := map[string]string{}

	for _, group := range []struct {
		key   string
		nodes []Node
	}{{"controlplanes", f.ControlPlanes}, {"workers", f.Workers}} {
		for i, n := range group.nodes {
			path := fmt.Sprintf("nodes.json: %s[%d]", group.key, i)

			if n.Name == "" {
				errs = append(errs, fmt.Errorf("%s.name: is required", path))
			}

			for _, claim := range []struct{ key, value string }{{".name", n.Name}, {".dhcp", n.DHCP}, {".address", n.Address}} {
				if claim.value == "" {
					continue
				}

				if _, err := netip.ParseAddr(claim.value); err != nil && claim.key != ".name" {
					errs = append(errs, fmt.Errorf("%s%s: must be an address (given: %s)", path, claim.key, claim.value))
				}

				if other := seen[claim.value]; other != "" && other != path {
					errs = append(errs, fmt.Errorf("%s%s: is at %s too (given: %s)", path, claim.key, other, claim.value))
				}

				seen[claim.value] = path
			}
		}
	}

	return errors.Join(errs...)
}
