package vms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// leftDisk is a disk with the VMID of a node whose VM is not there yet.
type leftDisk struct {
	volume, host string
	node         plan.Node
}

// CheckLeftDisks checks that no disk has the VMID of a VM that is to be created: of a VM whose configuration was lost,
// or of a storage driver that names its volumes so. The VM would not use it, and its deletion would delete it: the
// provider deletes VMs with destroy-unreferenced-disks.
func (c *Checker) CheckLeftDisks(ctx context.Context) error {
	if c.Plan.Teardown {
		return nil // nothing is created
	}

	absent := map[int]plan.Node{}
	hosts := map[string]bool{}

	for _, n := range c.Plan.Nodes() {
		if c.Absent[n.VMID] && c.Unreachable[n.Host] == nil {
			absent[n.VMID], hosts[n.Host] = n, true
		}
	}

	found, err := c.leftDisks(ctx, slices.Sorted(maps.Keys(hosts)), absent)
	if err != nil || len(found) == 0 {
		return err
	}

	held, err := c.Proxmox.Permissions(ctx)
	if err != nil {
		return err
	}

	for len(found) > 0 {
		first := found[0]
		others := slices.IndexFunc(found, func(d leftDisk) bool { return d.compare(first) != 0 })

		if others < 0 {
			others = len(found)
		}

		c.Problems = append(c.Problems, c.leftDisksProblem(found[:others], held.SeesAllVMs()))
		found = found[others:]
	}

	return nil
}

// compare orders disks by the node that they are in the way of, and the host that has them.
func (d leftDisk) compare(other leftDisk) int {
	return cmp.Or(cmp.Compare(d.node.VMID, other.node.VMID), cmp.Compare(d.host, other.host))
}

// leftDisksProblem names the disks that are in the way of one node on one host. Who does not see all VMs is not told to
// remove them.
func (c *Checker) leftDisksProblem(disks []leftDisk, seesAllVMs bool) spec.Problem {
	var volumes []string
	for _, d := range disks {
		volumes = append(volumes, d.volume)
	}

	n, host := disks[0].node, disks[0].host
	rule := fmt.Sprintf("%d has no VM, but disks on host %s", n.VMID, host)
	other := fmt.Sprintf("choose another range (the next free VMID is %d)", c.freeVMID(n.VMID, n.Pool))
	remedy := fmt.Sprintf("inspect the disks, and remove them if nothing needs them (run 'pvesm free %s' on host "+
		"%s); or %s", strings.Join(volumes, " && pvesm free "), host, other)

	if !seesAllVMs {
		rule = fmt.Sprintf("%d has no VM that the credentials see, but disks on host %s", n.VMID, host)
		remedy = other
	}

	return spec.Problem{
		Path: "pools." + n.Pool + ".vmids", Value: n.Name,
		Rule: fmt.Sprintf("%s (%s): their owner is unknown, and they would be deleted together with this node's VM", rule,
			checks.UpTo(volumes, 3)),
		Remedy: remedy,
	}
}

// leftDisks are the disks with the VMIDs of nodes, those of a node and a host together. A shared datastore is read on
// one host.
func (c *Checker) leftDisks(ctx context.Context, hosts []string, of map[int]plan.Node) ([]leftDisk, error) {
	var (
		mu    sync.Mutex
		found []leftDisk
		group errgroup.Group
		read  = map[string]bool{}
	)

	group.SetLimit(checks.MaxReaders)

	for _, host := range hosts {
		stores, err := c.StoresOf(ctx, host)
		if err != nil {
			continue // CheckHosts has said so
		}

		for _, name := range slices.Sorted(maps.Keys(stores)) {
			store := stores[name]
			if !store.Active || !slices.Contains(store.Content, "images") || store.Shared && read[name] {
				continue
			}

			read[name] = true

			group.Go(func() error {
				images, err := c.Proxmox.DiskImages(ctx, host, name)

				mu.Lock()
				defer mu.Unlock()

				switch {
				case errors.Is(err, proxmoxapi.ErrRefused):
					return err
				case err != nil:
					c.Warnings = append(c.Warnings, spec.Problem{
						Path: "proxmox.storage", Value: name,
						Rule: fmt.Sprintf("could not be searched on host %s for disks with the VMIDs of new nodes: %v", host, err),
						Remedy: fmt.Sprintf("run 'pvesm list %s' there: a disk with such a VMID is deleted together with the VM of "+
							"the node", name),
					})
				}

				for _, image := range images {
					c.withDisks[image.VMID] = true

					if n, absent := of[image.VMID]; absent && (store.Shared || n.Host == host) {
						found = append(found, leftDisk{volume: image.Volume, host: host, node: n})
					}
				}

				return nil
			})
		}
	}

	err := group.Wait()

	slices.SortFunc(found, func(a, b leftDisk) int { return cmp.Or(a.compare(b), cmp.Compare(a.volume, b.volume)) })

	return found, err
}
