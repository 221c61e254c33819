package proxmoxapi

import (
	"context"
	"net/url"
	"strings"
)

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

// HAComments are the comments of what the high-availability manager looks after, by its id ("vm:401").
func (c *Client) HAComments(ctx context.Context) (map[string]string, error) {
	var reply []struct{ SID, Comment string }
	if err := c.get(ctx, "/cluster/ha/resources", &reply); err != nil {
		return nil, err
	}

	found := map[string]string{}
	for _, r := range reply {
		found[r.SID] = r.Comment
	}

	return found, nil
}

// HARule says where high availability runs VMs. Proxmox VE has rules since version 9.
type HARule struct {
	Name string
	// Kind is HANodes or HAApart.
	Kind    string
	Comment string
	// Resources are "vm:401", Nodes are hosts with a priority if they have one, "pve1:2".
	Resources, Nodes []string
	Strict           bool
	// Disabled rules place no VM.
	Disabled bool
	// Digest is that of all rules.
	Digest string
}

// The kinds of rules: hosts that VMs prefer, and VMs that are kept apart.
const (
	HANodes = "node-affinity"
	HAApart = "resource-affinity"
)

// HARules are the rules of high availability.
func (c *Client) HARules(ctx context.Context) ([]HARule, error) {
	var reply []struct {
		Rule, Type, Comment, Resources, Nodes, Digest string
		Strict, Disable                               int
	}
	if err := c.get(ctx, "/cluster/ha/rules", &reply); err != nil {
		return nil, err
	}

	var found []HARule

	for _, r := range reply {
		found = append(found, HARule{
			Name: r.Rule, Kind: r.Type, Comment: r.Comment, Resources: listed(r.Resources), Nodes: listed(r.Nodes),
			Strict: r.Strict == 1, Disabled: r.Disable == 1, Digest: r.Digest,
		})
	}

	return found, nil
}

func listed(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ';' || c == ' ' })
}

// SetHARule makes a rule, or changes the one with its name if Digest says which rules there were.
func (c *Client) SetHARule(ctx context.Context, r HARule) error {
	path := "/cluster/ha/rules"
	values := map[string]any{"type": r.Kind, "resources": strings.Join(r.Resources, ","), "comment": r.Comment}

	if r.Kind == HANodes {
		values["nodes"] = strings.Join(r.Nodes, ",")
		values["strict"] = r.Strict
	} else {
		values["affinity"] = "negative"
	}

	if r.Digest == "" {
		values["rule"] = r.Name

		return c.request(ctx, "POST", path, values, nil)
	}

	values["digest"] = r.Digest
	path += "/" + url.PathEscape(r.Name)

	return c.request(ctx, "PUT", path, values, nil)
}

// DeleteHARule removes a rule.
func (c *Client) DeleteHARule(ctx context.Context, name string) error {
	path := "/cluster/ha/rules/" + url.PathEscape(name)

	return c.request(ctx, "DELETE", path, nil, nil)
}
