package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// refreshVMs asks the hosts that nodes are on, or are to be on, for their VMs: what the cluster repeats of them may be
// old, or forgotten. Where a host does not answer, that stays all there is.
func (c *checks) refreshVMs(ctx context.Context) error {
	var (
		asked = c.relevantHosts()
		vms   = make([][]proxmoxapi.VM, len(asked))
		errs  = make([]error, len(asked))
		done  sync.WaitGroup
	)

	for i, host := range asked {
		done.Go(func() { vms[i], errs[i] = c.proxmox.VMsOn(ctx, host) })
	}

	done.Wait()

	now := map[int]proxmoxapi.VM{}

	for i, host := range asked {
		switch {
		case errors.Is(errs[i], proxmoxapi.ErrHostSilent):
			c.unreachable[host] = errs[i]
		case errs[i] != nil:
			return errs[i]
		}

		for _, v := range vms[i] {
			now[v.ID] = v
		}
	}

	for i, v := range c.vms {
		if heard, there := now[v.ID]; there && heard.Host == v.Host {
			heard.Pool = v.Pool
			c.vms[i] = heard
		}

		c.vms[i].Silent = c.unreachable[v.Host] != nil
	}

	return nil
}

// relevantHosts are the hosts that nodes are on. One that is not there is found by checkHosts.
func (c *checks) relevantHosts() []string {
	var (
		planned = map[int]bool{}
		hosts   = map[string]bool{}
		known   = map[string]bool{}
	)

	for _, n := range c.plan.Nodes() {
		planned[n.VMID], hosts[n.Host] = true, true
	}

	for _, v := range c.vms {
		known[v.Host] = true

		if planned[v.ID] || vmidentity.OfCluster(v, c.plan) {
			hosts[v.Host] = true
		}
	}

	// A host without any VM has nothing to say of them.
	maps.DeleteFunc(hosts, func(host string, _ bool) bool { return !known[host] })

	return slices.Sorted(maps.Keys(hosts))
}

// checkUnreachableHosts names the hosts that do not answer, and what cannot be done there. It blocks nothing on other
// hosts.
func (c *checks) checkUnreachableHosts(ctx context.Context) error {
	if len(c.unreachable) == 0 {
		return nil
	}

	hosts, err := c.proxmox.Hosts(ctx)
	if err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(c.unreachable)) {
		var nodes []string

		for _, n := range c.plan.Nodes() {
			if slices.ContainsFunc(c.vms, func(v proxmoxapi.VM) bool { return v.ID == n.VMID && v.Host == name }) {
				nodes = append(nodes, n.Name)
			}
		}

		if len(nodes) == 0 {
			continue
		}

		rule := "does not answer, though the cluster sees it"
		if i := slices.IndexFunc(hosts, func(h proxmoxapi.Host) bool { return h.Name == name }); i >= 0 && !hosts[i].Online {
			rule = "is offline"
		}

		c.warnings = append(c.warnings, spec.Problem{
			Path: "proxmox.hosts", Value: name,
			Rule: fmt.Sprintf("%s: the state of the VMs of %s is unknown, and none of them can be changed or deleted", rule,
				strings.Join(nodes, ", ")),
			Remedy: "start it, or check its daemons ('systemctl status pveproxy pvedaemon'); what is elsewhere can be changed",
		})
	}

	return nil
}
