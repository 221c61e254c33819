package proxmoxapi

import (
	"context"
	"path"
	"slices"
)

// Permissions are what the credentials may do, as Proxmox VE works it out: for a token that is less than for its user.
type Permissions map[string]map[string]bool

// Permissions asks what the credentials may do.
func (c *Client) Permissions(ctx context.Context) (Permissions, error) {
	// The number says whether what is below the path has the privilege, too.
	var reply map[string]map[string]int
	if err := c.get(ctx, "/access/permissions", &reply); err != nil {
		return nil, err
	}

	found := Permissions{}

	for path, privileges := range reply {
		found[path] = map[string]bool{}
		for name, inherited := range privileges {
			found[path][name] = inherited == 1
		}
	}

	return found, nil
}

// On says whether the credentials have one of the privileges on a path. What is listed for a path is all there is; a
// path that is not listed has what the one above it hands down. Proxmox VE leaves out a path on which everything was
// taken away: there, this says too much.
func (p Permissions) On(at string, privileges ...string) bool {
	for here := at; ; here = path.Dir(here) {
		if listed, there := p[here]; there {
			return slices.ContainsFunc(privileges, func(name string) bool {
				inherited, has := listed[name]

				return has && (inherited || here == at)
			})
		}

		if here == "/" || here == "." {
			return false
		}
	}
}

// SeesAllVMs says whether VM.Audit is held on VMs whatever their VMID: others appear not to exist.
func (p Permissions) SeesAllVMs() bool { return p.On("/vms/0", "VM.Audit") }
