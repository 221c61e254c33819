package proxmoxapi

import (
	"context"
	"encoding/json"
)

// Mappings returns the resource mappings of PCI devices, by name.
func (c *Client) Mappings(ctx context.Context) (map[string]bool, error) {
	var reply []struct{ ID string }
	if err := c.get(ctx, "/cluster/mapping/pci", &reply); err != nil {
		return nil, err
	}

	found := map[string]bool{}
	for _, m := range reply {
		found[m.ID] = true
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
