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
	absent := map[int]plan.Node{}
	hosts := map[string]bool{}

	for _, n := range c.Plan.Nodes() {
		if c.Absent[n.VMID] && c.Unreachable[n.Host] == nil {
			absent[n.VMID], hosts[n.Host] = n, true
		}
	}

	found, err := c.leftDisks(ctx, slices.Sorted(maps.Keys(hosts)), absent)
	if err != nil {
		return err
	}

	of := map[int][]leftDisk{}
	for _, d := range found {
		of[d.node.VMID] = append(of[d.node.VMID], d)
	}

	for _, vmid := range slices.Sorted(maps.Keys(of)) {
		var volumes []string
		for _, d := range of[vmid] {
			volumes = append(volumes, d.volume)
		}

		first := of[vmid][0]

		c.Problems.Add("pools."+first.node.Pool+".vmids", fmt.Sprintf("%d has no VM, but disks on host %s (%s): their owner "+
			"is unknown, and they would be deleted together with this node's VM", vmid, first.host,
			checks.UpTo(volumes, 3)), first.node.Name,
			fmt.Sprintf("choose another range (the next free VMID is %d), or inspect the disks, and remove them if nothing "+
				"needs them ('pvesm free %s' there)", c.freeVMID(vmid, first.node.Pool), strings.Join(volumes, " ")))
	}

	return nil
}

// leftDisks are the disks with the VMIDs of nodes, in the order of their names. A shared datastore is read on one host.
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
					if n, absent := of[image.VMID]; absent && (store.Shared || n.Host == host) {
						found = append(found, leftDisk{volume: image.Volume, host: host, node: n})
					}
				}

				return nil
			})
		}
	}

	err := group.Wait()

	slices.SortFunc(found, func(a, b leftDisk) int { return cmp.Compare(a.volume, b.volume) })

	return found, err
}
