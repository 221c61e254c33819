package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// checkSnippets checks that user data can be kept on the host of each K3s node that is yet to be made.
func (c *checker) checkSnippets(ctx context.Context) error {
	if c.Plan.K3s == nil {
		return nil
	}

	const path = "proxmox.storage.snippets"

	asked := map[string]bool{}

	for _, n := range c.Plan.Nodes() {
		if asked[n.Host] || !c.Absent[n.VMID] && !c.Recreates(n) || !c.CanAsk(n.Host) {
			continue
		}

		asked[n.Host] = true

		stores, err := c.StoresOf(ctx, n.Host)
		if err != nil {
			return err
		}

		store := c.Plan.K3s.Snippets

		switch is, there := stores[store]; {
		case !there:
			c.Problems.Add(path, "datastore not found on host "+n.Host, store, "name one that is, and takes snippets")
		case !is.Active:
			c.Problems.Add(path, "is not active on host "+n.Host, store, "switch it on there, or name another")
		case !slices.Contains(is.Content, "snippets"):
			c.Problems.Add(path, "does not accept snippets on host "+n.Host, store+", which "+
				"takes "+strings.Join(is.Content, ", "),
				fmt.Sprintf("run 'pvesm set %s --content %s,snippets', or name another datastore", store,
					strings.Join(is.Content, ",")))
		}
	}

	return nil
}

// checkUserData refuses new user data that would replace another VM's. The file has the name of its node, whatever the
// cluster, and the provider overwrites the one that is there: cloud-init would set the other VM up again at its next
// start. A file that no VM uses may be left of a run that was cut off, or of a VM that was deleted by hand, and is
// written again.
func (c *checker) checkUserData(ctx context.Context) error {
	if c.Plan.K3s == nil {
		return nil
	}

	known := &userDataFiles{}

	for _, n := range c.Plan.Nodes() {
		// Of other nodes, the user data stay as they are.
		if !c.Absent[n.VMID] && !c.Plan.Replaces(n.Name) {
			continue
		}

		if i := slices.IndexFunc(c.VMs, func(v proxmoxapi.VM) bool {
			return c.strange(v, n) && !v.Template && v.Name == n.Name
		}); i >= 0 {
			c.Problems = append(c.Problems, c.sameUserData(n, c.VMs[i], "has that name, and does not belong to "+
				"this cluster: both would share one user data file"))

			continue
		}

		if err := c.checkUserDataFile(ctx, n, known); err != nil {
			return err
		}
	}

	return nil
}

// strange says that a VM is no node of the cluster, nor the one that a node is to have.
func (c *checker) strange(v proxmoxapi.VM, n plan.Node) bool {
	return v.ID != n.VMID && !v.Container && !vmidentity.OfCluster(v, c.Plan)
}

// checkUserDataFile checks that no VM of others uses the file that a node is to have.
func (c *checker) checkUserDataFile(ctx context.Context, n plan.Node, known *userDataFiles) error {
	store := c.Plan.K3s.Snippets

	// A host that does not answer gets no node, new or replaced.
	if !c.CanAsk(n.Host) {
		return nil
	}

	stores, err := c.StoresOf(ctx, n.Host)
	if err != nil || !stores[store].Active || !slices.Contains(stores[store].Content, "snippets") {
		return err // Without a datastore that takes them, there are none.
	}

	if _, asked := c.UserData[n.Host]; !asked {
		files, err := c.Proxmox.Snippets(ctx, n.Host, store)
		if err != nil {
			return err
		}

		c.UserData[n.Host] = files
	}

	file := fmt.Sprintf("%s:snippets/%s.yaml", store, n.Name)
	if _, there := c.UserData[n.Host][file]; !there {
		return nil
	}

	if err := c.readUserData(ctx, known); err != nil {
		return err
	}

	// A node that is replaced has the file already.
	if c.Absent[n.VMID] && !known.allVMs {
		c.Problems.Add("pools."+n.Pool, "its user data "+file+" already exists, and the credentials do not see all VMs: "+
			"it is not known whether one uses it", n.Name, "grant VM.Audit on /vms; or delete the file, if no VM uses it")
	}

	for i, v := range c.VMs {
		// A VM reads the files of its own host.
		if !c.strange(v, n) || v.Host != n.Host && !known.shared {
			continue
		}

		switch {
		case known.unread[i] != nil:
			c.Problems.Add("pools."+n.Pool, fmt.Sprintf("its user data %s already exists, and it could not be "+
				"determined whether %s (VMID %d on host %s) uses it: %v", file, v.Label(), v.ID, v.Host,
				known.unread[i]), n.Name,
				"make sure that the host answers; or delete the file, if no VM uses it")
		case slices.Contains(slices.Collect(maps.Values(proxmoxapi.Properties(known.used[i]))), file):
			c.Problems = append(c.Problems, c.sameUserData(n, v, "does not belong to this cluster and uses the "+
				"user data "+file))
		}
	}

	return nil
}

// userDataFiles are what VMs take from files.
type userDataFiles struct {
	// read says that VMs were asked: used is what each takes from files, unread why that is not known.
	read   bool
	used   []string
	unread []error
	// shared says that all hosts see the same files, allVMs that the credentials see all VMs.
	shared, allVMs bool
}

// readUserData asks the VMs of others, once, what they take from files.
func (c *checker) readUserData(ctx context.Context, known *userDataFiles) error {
	if known.read {
		return nil
	}

	shared, err := c.Proxmox.SharedStores(ctx)
	if err != nil {
		return err
	}

	held, err := c.Proxmox.Permissions(ctx)
	if err != nil {
		return err
	}

	known.read, known.shared, known.allVMs = true, shared[c.Plan.K3s.Snippets], held.SeesAllVMs()
	known.used, known.unread = make([]string, len(c.VMs)), make([]error, len(c.VMs))

	var group errgroup.Group

	group.SetLimit(checks.MaxReaders)

	for i, v := range c.VMs {
		if v.Container || vmidentity.OfCluster(v, c.Plan) {
			continue
		}

		group.Go(func() error {
			config, err := c.Proxmox.Config(ctx, v)
			known.used[i], known.unread[i] = config.UserData, err

			return nil
		})
	}

	return group.Wait()
}

// sameUserData is the problem of a node that another VM has the user data of.
func (c *checker) sameUserData(n plan.Node, v proxmoxapi.VM, why string) spec.Problem {
	rule := fmt.Sprintf("%s (VMID %d on host %s) %s, and cloud-init would set that VM up again at its next start",
		v.Label(), v.ID, v.Host, why)

	if !c.Absent[n.VMID] {
		return spec.Problem{
			Path: "lifecycle.replace", Rule: rule, Value: n.Name,
			Remedy: "take the node out of the list until that VM is gone, or has other user data and another name",
		}
	}

	return spec.Problem{
		Path: "pools." + n.Pool + ".names", Rule: rule, Value: n.Name,
		Remedy: "choose names that no other cluster has, such as {cluster}-{pool}-{n} with another pool or cluster name; " +
			"or remove that VM",
	}
}
