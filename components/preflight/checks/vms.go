package checks

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// Read asks Proxmox VE which VMs there are, and which hosts answer. The error says that Proxmox VE did not answer.
func (c *Checker) Read(ctx context.Context) error {
	var err error
	if c.VMs, err = c.Proxmox.VMs(ctx); err != nil {
		return err
	}

	if err := c.refreshVMs(ctx); err != nil {
		return err
	}

	there := map[int]bool{}
	for _, v := range c.VMs {
		there[v.ID] = true
	}

	for _, n := range c.Plan.Nodes() {
		if !there[n.VMID] {
			c.Absent[n.VMID] = true
		}
	}

	return nil
}

// UnplannedVMs are the VMs of the cluster that the plan no longer has.
func (c *Checker) UnplannedVMs() []proxmoxapi.VM {
	planned := map[int]bool{}
	for _, n := range c.Plan.Nodes() {
		planned[n.VMID] = true
	}

	return slices.DeleteFunc(slices.Clone(c.VMs), func(v proxmoxapi.VM) bool {
		return planned[v.ID] || !vmidentity.OfCluster(v, c.Plan)
	})
}

// refreshVMs asks the hosts that nodes are on, or are to be on, for their VMs: what the cluster repeats of them may be
// old, or forgotten. Where a host does not answer, that stays all there is.
func (c *Checker) refreshVMs(ctx context.Context) error {
	var (
		asked = c.relevantHosts()
		vms   = make([][]proxmoxapi.VM, len(asked))
		errs  = make([]error, len(asked))
		done  sync.WaitGroup
	)

	for i, host := range asked {
		done.Go(func() { vms[i], errs[i] = c.Proxmox.VMsOn(ctx, host) })
	}

	done.Wait()

	now := map[int]proxmoxapi.VM{}

	for i, host := range asked {
		switch {
		case errors.Is(errs[i], proxmoxapi.ErrHostUnreachable):
			c.Unreachable[host] = errs[i]
		case errs[i] != nil:
			return errs[i]
		}

		for _, v := range vms[i] {
			now[v.ID] = v
		}
	}

	for i, v := range c.VMs {
		if heard, there := now[v.ID]; there && heard.Host == v.Host {
			heard.Pool = v.Pool
			c.VMs[i] = heard
		}

		c.VMs[i].Unreachable = c.Unreachable[v.Host] != nil
	}

	return nil
}

// relevantHosts are the hosts that nodes are on. One that is not there is found when hosts are checked.
func (c *Checker) relevantHosts() []string {
	var (
		planned = map[int]bool{}
		hosts   = map[string]bool{}
		known   = map[string]bool{}
	)

	for _, n := range c.Plan.Nodes() {
		planned[n.VMID], hosts[n.Host] = true, true
	}

	for _, v := range c.VMs {
		known[v.Host] = true

		if planned[v.ID] || vmidentity.OfCluster(v, c.Plan) {
			hosts[v.Host] = true
		}
	}

	// A host without any VM has nothing to say of them.
	maps.DeleteFunc(hosts, func(host string, _ bool) bool { return !known[host] })

	return slices.Sorted(maps.Keys(hosts))
}
