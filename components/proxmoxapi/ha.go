package proxmoxapi

import "context"

// HAGroups are the high-availability groups of the cluster.
func (c *Client) HAGroups(ctx context.Context) ([]string, error) {
	var groups []struct {
		Group string `json:"group"`
	}

	if err := c.get(ctx, "/cluster/ha/groups", &groups); err != nil {
		return nil, err
	}

	var names []string
	for _, g := range groups {
		names = append(names, g.Group)
	}

	return names, nil
}
