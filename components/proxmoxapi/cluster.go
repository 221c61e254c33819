package proxmoxapi

import (
	"context"
	"encoding/json"
)

// Mapped is a device of a host that a resource mapping stands for.
type Mapped struct{ Host, BDF string }

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
			found[m.ID] = append(found[m.ID], Mapped{Host: properties["node"], BDF: properties["path"]})
		}
	}

	return found, nil
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

// FirewallRules returns how many firewall rules a VM has.
func (c *Client) FirewallRules(ctx context.Context, vm VM) (int, error) {
	var reply []json.RawMessage

	err := c.get(ctx, qemu(vm)+"/firewall/rules", &reply)

	return len(reply), err
}
