package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// lookForSnippets holds that user data can be kept on the host of each K3s node that is yet to be made.
func (s *survey) lookForSnippets(ctx context.Context) error {
	if s.plan.K3s == nil {
		return nil
	}

	const path = "proxmox.storage.snippets"

	asked := map[string]bool{}

	for _, n := range s.plan.Nodes() {
		if asked[n.Host] || !s.absent[n.VMID] {
			continue
		}

		asked[n.Host] = true

		stores, err := s.storesOf(ctx, n.Host)
		if err != nil {
			return err
		}

		store := s.plan.K3s.Snippets

		switch is, there := stores[store]; {
		case !there:
			s.problems.Add(path, "is no datastore of host "+n.Host, store, "name one that is, and takes snippets")
		case !slices.Contains(is.Content, "snippets"):
			s.problems.Add(path, "takes no snippets on host "+n.Host, store+", which takes "+strings.Join(is.Content, ", "),
				fmt.Sprintf("run 'pvesm set %s --content %s,snippets', or name another datastore", store, strings.Join(is.Content, ",")))
		}
	}

	return nil
}

// checkCloudTemplate holds that what a K3s node is cloned from was made for cloud-init. What the provider makes anew is the
// drive, not the system that reads it.
func checkCloudTemplate(template proxmoxapi.VM, config proxmoxapi.VMConfig, path string) *plan.Problem {
	if config.CloudInit {
		return nil
	}

	return &plan.Problem{
		Path: path, Rule: "must be a template for cloud-init, and this one has no cloud-init drive",
		Value:  fmt.Sprintf("%s, VMID %d on host %s", template.Name, template.ID, template.Host),
		Remedy: fmt.Sprintf("name another, or, where Ubuntu's cloud image is in it, run 'qm set %d --ide2 <datastore>:cloudinit' on that host", template.ID),
	}
}
