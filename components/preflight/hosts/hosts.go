package hosts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// CheckHosts checks that the hosts that are to have new VMs are up, and have the datastores and bridges that those
// need. Of hosts whose VMs are all there, nothing is asked.
func (c Checker) CheckHosts(ctx context.Context) error {
	newNodes := map[string][]plan.Node{}

	for _, n := range c.Plan.Nodes() {
		if c.Absent[n.VMID] {
			newNodes[n.Host] = append(newNodes[n.Host], n)
		}
	}

	if len(newNodes) == 0 {
		return nil
	}

	hosts, err := c.Proxmox.Hosts(ctx)
	if err != nil {
		return err
	}

	needed := storageNeeds{}

	for _, name := range slices.Sorted(maps.Keys(newNodes)) {
		at := slices.IndexFunc(hosts, func(h proxmoxapi.Host) bool { return h.Name == name })

		switch {
		case at < 0:
			var names []string
			for _, h := range hosts {
				names = append(names, h.Name)
			}

			c.Unavailable[name] = true
			c.Problems.Add("proxmox.hosts", "not found in this Proxmox VE, which has the hosts "+strings.Join(names, ", "), name,
				"correct the name; case matters")
		case !hosts[at].Online:
			c.Unavailable[name] = true
			c.Problems.Add("proxmox.hosts", "is offline, but new nodes are planned on it", name, "start it, or "+
				"take it out")
		default:
			c.checkCapacity(hosts[at], newNodes[name])

			if err := errors.Join(c.checkClock(ctx, name), c.checkHost(ctx, name, newNodes[name], needed)); err != nil {
				return err
			}
		}
	}

	c.Warnings = append(c.Warnings, needed.warnings()...)

	return nil
}

// checkHost asks a host for the datastores and bridges of new nodes.
func (c Checker) checkHost(ctx context.Context, host string, newNodes []plan.Node, needed storageNeeds) error {
	stores, err := c.StoresOf(ctx, host)

	var bridges []proxmoxapi.Bridge
	if err == nil {
		bridges, err = c.BridgesOf(ctx, host)
	}

	if errors.Is(err, proxmoxapi.ErrHostUnreachable) {
		c.reportUnreachableHost(host)

		return nil
	} else if err != nil {
		return err
	}

	for _, b := range bridges {
		c.VNets[b.Name] = c.VNets[b.Name] || b.VNet
	}

	for _, n := range newNodes {
		path := "pools." + n.Pool

		for i, d := range n.Disks {
			if c.CheckDatastore(stores, host, d.Datastore, "images", path+".disk.datastore") {
				c.warnIOUring(n, i, stores[d.Datastore])
			}

			if store := stores[d.Datastore]; store.Active {
				needed.add(host, d.Datastore, store, d.SizeGiB)
			}
		}

		if image := c.Plan.PoolOf(n).Image; image.URL != "" || image.FactoryURL != "" {
			c.CheckDatastore(stores, host, c.Plan.ImageStore, "iso", "proxmox.storage.images")
		}

		for _, nic := range n.NICs {
			c.CheckBridge(n, nic, host, bridges)
			c.CheckMTU(n, nic, host, bridges)
		}
	}

	return nil
}

// CheckBridge checks that a host has the bridge of a network interface.
func (c Checker) CheckBridge(n plan.Node, nic plan.Interface, host string, bridges []proxmoxapi.Bridge) {
	if !slices.ContainsFunc(bridges, func(b proxmoxapi.Bridge) bool { return b.Name == nic.Bridge }) {
		c.Problems.Add("pools."+n.Pool+".nics", "bridge not found on host "+host+", or the credentials lack SDN.Use on it",
			nic.Bridge, "name another, make it there, or grant SDN.Use on it")
	}
}

// reportUnreachableHost adds the problem of a host that is to have new nodes and does not answer.
func (c Checker) reportUnreachableHost(host string) {
	c.Unavailable[host] = true
	c.Problems.Add("proxmox.hosts", "does not answer, but new nodes are planned on it", host,
		"repair it, or take it out")
}
