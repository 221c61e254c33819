package proxmoxapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/luthermonson/go-proxmox"
)

// Version is a version of Proxmox VE: "8.4.1" and its first number.
type Version struct {
	Text  string
	Major int
}

// Version returns the version of the host that answers. Every user may ask for it.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var reply struct{ Version string }
	if err := c.get(ctx, "/version", &reply); err != nil {
		return Version{}, err
	}

	major, _, _ := strings.Cut(reply.Version, ".")

	n, err := strconv.Atoi(major)
	if err != nil {
		return Version{}, fmt.Errorf("Proxmox VE at %s answers GET /version with: %q", c.endpoint, reply.Version)
	}

	return Version{Text: reply.Version, Major: n}, nil
}

// Mapped is a device of a host that a resource mapping stands for.
type Mapped struct {
	Host, BDF string
	// ID is its vendor and device, "10de:2204"; empty: not known.
	ID string
}

// String names the device.
func (m Mapped) String() string {
	if m.ID == "" {
		return m.Host + " " + m.BDF
	}

	return m.Host + " " + m.BDF + " (" + m.ID + ")"
}

// Same says that both are one device, as far as both are known. Proxmox VE takes an address without its domain.
func (m Mapped) Same(other Mapped) bool {
	const domain = "0000:"

	return m.Host == other.Host && strings.TrimPrefix(m.BDF, domain) == strings.TrimPrefix(other.BDF, domain) &&
		(m.ID == "" || other.ID == "" || strings.EqualFold(m.ID, other.ID))
}

// Mappings returns the resource mappings of PCI devices that the credentials may see, by name.
func (c *Client) Mappings(ctx context.Context) (map[string][]Mapped, error) {
	var reply []struct {
		ID  string   `json:"id"`
		Map []string `json:"map"`
	}
	if err := c.get(ctx, "/cluster/mapping/pci", &reply); err != nil {
		return nil, err
	}

	found := map[string][]Mapped{}

	for _, m := range reply {
		found[m.ID] = []Mapped{}

		for _, text := range m.Map {
			properties := Properties(text)
			found[m.ID] = append(found[m.ID], Mapped{
				Host: properties["node"], BDF: properties["path"], ID: properties["id"],
			})
		}
	}

	return found, nil
}

// DeleteMapping deletes the resource mapping of a PCI device.
func (c *Client) DeleteMapping(ctx context.Context, name string) error {
	return c.request(ctx, http.MethodDelete, "/cluster/mapping/pci/"+url.PathEscape(name), nil, nil)
}

// HAResources returns what the high-availability manager looks after, by its id ("vm:401").
func (c *Client) HAResources(ctx context.Context) (map[string]bool, error) {
	var reply []struct{ SID string }
	if err := c.get(ctx, "/cluster/ha/resources", &reply); err != nil {
		return nil, err
	}

	found := map[string]bool{}
	for _, r := range reply {
		found[r.SID] = true
	}

	return found, nil
}

// FirewallRules returns the firewall rules of a VM, in their order.
func (c *Client) FirewallRules(ctx context.Context, vm VM) ([]proxmox.FirewallRule, error) {
	var reply []proxmox.FirewallRule

	err := c.get(ctx, qemu(vm)+"/firewall/rules", &reply)

	return reply, err
}

// ResourcePools returns the resource pools that the credentials may see, by name: those on which they have Pool.Audit.
func (c *Client) ResourcePools(ctx context.Context) ([]string, error) {
	var pools []struct {
		ID string `json:"poolid"`
	}

	if err := c.get(ctx, "/pools", &pools); err != nil {
		return nil, err
	}

	var names []string
	for _, p := range pools {
		names = append(names, p.ID)
	}

	return names, nil
}
