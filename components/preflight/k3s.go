package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checkSnippets checks that user data can be kept on the host of each K3s node that is yet to be made.
func (c *checks) checkSnippets(ctx context.Context) error {
	if c.plan.K3s == nil {
		return nil
	}

	const path = "proxmox.storage.snippets"

	asked := map[string]bool{}

	for _, n := range c.plan.Nodes() {
		if asked[n.Host] || !c.absent[n.VMID] {
			continue
		}

		asked[n.Host] = true

		stores, err := c.storesOf(ctx, n.Host)
		if err != nil {
			return err
		}

		store := c.plan.K3s.Snippets

		switch is, there := stores[store]; {
		case !there:
			c.problems.Add(path, "datastore not found on host "+n.Host, store, "name one that is, and takes snippets")
		case !slices.Contains(is.Content, "snippets"):
			c.problems.Add(path, "takes no snippets on host "+n.Host, store+", which takes "+strings.Join(is.Content, ", "),
				fmt.Sprintf("run 'pvesm set %s --content %s,snippets', or name another datastore", store,
					strings.Join(is.Content, ",")))
		}
	}

	return nil
}

// checkCloudTemplate checks that the template of a K3s node was made for cloud-init. The provider recreates the drive,
// not the system that reads it.
func checkCloudTemplate(template proxmoxapi.VM, config proxmoxapi.VMConfig, path string) *spec.Problem {
	if config.CloudInit != "" {
		return nil
	}

	return &spec.Problem{
		Path: path, Rule: "must be a template for cloud-init, and this one has no cloud-init drive",
		Value: fmt.Sprintf("%s, VMID %d on host %s", template.Name, template.ID, template.Host),
		Remedy: fmt.Sprintf("name another, or, where Ubuntu's cloud image is in it, run 'qm set %d --ide2 "+
			"<datastore>:cloudinit' on that host", template.ID),
	}
}
