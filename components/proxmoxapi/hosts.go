package proxmoxapi

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Host is a host as Proxmox VE sees it.
type Host struct {
	Name   string
	Online bool
	// CPUs and MemoryMiB are what the host has in all; 0 where the credentials may not see it.
	CPUs, MemoryMiB int
}

// Hosts are all hosts of this Proxmox VE.
func (c *Client) Hosts(ctx context.Context) ([]Host, error) {
	var nodes []struct {
		Node   string `json:"node"`
		Status string `json:"status"`
		MaxCPU int    `json:"maxcpu"`
		MaxMem int64  `json:"maxmem"`
	}

	if err := c.get(ctx, "/nodes", &nodes); err != nil {
		return nil, err
	}

	found := make([]Host, len(nodes))
	for i, n := range nodes {
		found[i] = Host{Name: n.Node, Online: n.Status == "online", CPUs: n.MaxCPU, MemoryMiB: int(n.MaxMem >> 20)}
	}

	return found, nil
}

// Store is a datastore as a host sees it.
type Store struct {
	// Type is its kind: "lvmthin", "dir".
	Type string
	// Content are the kinds that it takes: "images" (the disks of VMs), "iso", "import", "snippets".
	Content []string
	// Active says that the host has it at hand.
	Active bool
	// Shared says that other hosts see the same content.
	Shared bool
	// Free is in bytes.
	Free int64
}

// Stores returns the datastores of a host that the credentials may use.
func (c *Client) Stores(ctx context.Context, host string) (map[string]Store, error) {
	var stores []struct {
		Storage string `json:"storage"`
		Type    string `json:"type"`
		Content string `json:"content"`
		Active  int    `json:"active"`
		Shared  int    `json:"shared"`
		Avail   int64  `json:"avail"`
	}

	if err := c.get(ctx, fmt.Sprintf("/nodes/%s/storage", host), &stores); err != nil {
		return nil, err
	}

	found := map[string]Store{}
	for _, s := range stores {
		found[s.Storage] = Store{
			Type: s.Type, Content: strings.Split(s.Content, ","), Active: s.Active == 1, Shared: s.Shared == 1,
			Free: s.Avail,
		}
	}

	return found, nil
}

// Bridge is a network that VMs of a host can be connected to.
type Bridge struct {
	Name string
	// VNet says that it belongs to a zone of the software-defined network.
	VNet bool
	// MTU that the host's configuration states; 0: none.
	MTU int
}

// Bridges are those of a host that the credentials may see.
func (c *Client) Bridges(ctx context.Context, host string) ([]Bridge, error) {
	var reply []struct {
		Iface string `json:"iface"`
		Type  string `json:"type"`
		// As its file has it: a text.
		MTU any `json:"mtu"`
	}

	if err := c.get(ctx, fmt.Sprintf("/nodes/%s/network?type=any_bridge", host), &reply); err != nil {
		return nil, err
	}

	bridges := make([]Bridge, len(reply))
	for i, b := range reply {
		bridges[i] = Bridge{Name: b.Iface, VNet: b.Type == "vnet"}
		bridges[i].MTU, _ = strconv.Atoi(setting(b.MTU))
	}

	return bridges, nil
}

// Time is what a host's clock shows.
func (c *Client) Time(ctx context.Context, host string) (time.Time, error) {
	var reply struct {
		Time int64 `json:"time"`
	}

	err := c.get(ctx, fmt.Sprintf("/nodes/%s/time", host), &reply)

	return time.Unix(reply.Time, 0), err
}
