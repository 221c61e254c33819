package components

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// hear asks the hosts that nodes are on, or are to be on, for their VMs: what the cluster repeats of them may be old, or forgotten. Where
// a host does not answer, that stays all there is.
func (s *survey) hear(ctx context.Context) error {
	var (
		asked = s.concerned()
		vms   = make([][]proxmoxapi.VM, len(asked))
		errs  = make([]error, len(asked))
		done  sync.WaitGroup
	)

	for i, host := range asked {
		done.Go(func() { vms[i], errs[i] = s.proxmox.VMsOn(ctx, host) })
	}

	done.Wait()

	now := map[int]proxmoxapi.VM{}

	for i, host := range asked {
		switch {
		case errors.Is(errs[i], proxmoxapi.ErrHostSilent):
			s.silent[host] = errs[i]
		case errs[i] != nil:
			return errs[i]
		}

		for _, v := range vms[i] {
			now[v.ID] = v
		}
	}

	for i, v := range s.vms {
		if heard, there := now[v.ID]; there && heard.Host == v.Host {
			s.vms[i] = heard
		}

		s.vms[i].Silent = s.silent[v.Host] != nil
	}

	return nil
}

// concerned are the hosts that nodes are on. One that is not there is found by lookForHosts.
func (s *survey) concerned() []string {
	var (
		planned = map[int]bool{}
		hosts   = map[string]bool{}
		known   = map[string]bool{}
	)

	for _, n := range s.plan.Nodes() {
		planned[n.VMID], hosts[n.Host] = true, true
	}

	for _, v := range s.vms {
		known[v.Host] = true

		if planned[v.ID] || ofCluster(v, s.plan) {
			hosts[v.Host] = true
		}
	}

	// A host without any VM has nothing to say of them.
	maps.DeleteFunc(hosts, func(host string, _ bool) bool { return !known[host] })

	return slices.Sorted(maps.Keys(hosts))
}

// lookForSilence names the hosts that do not answer, and what cannot be done there. It stops nothing elsewhere.
func (s *survey) lookForSilence(ctx context.Context) error {
	if len(s.silent) == 0 {
		return nil
	}

	hosts, err := s.proxmox.Hosts(ctx)
	if err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(s.silent)) {
		var nodes []string

		for _, n := range s.plan.Nodes() {
			if slices.ContainsFunc(s.vms, func(v proxmoxapi.VM) bool { return v.ID == n.VMID && v.Host == name }) {
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

		s.warnings = append(s.warnings, plan.Problem{
			Path: "proxmox.hosts", Value: name,
			Rule:   fmt.Sprintf("%s: the state of the VMs of %s is unknown, and none of them can be changed or deleted", rule, strings.Join(nodes, ", ")),
			Remedy: "start it, or see to its daemons ('systemctl status pveproxy pvedaemon'); what is elsewhere can be changed",
		})
	}

	return nil
}

// unchangeable is why a VM cannot be changed whose host does not answer; nil: its host does.
func unchangeable(v proxmoxapi.VM, name string) error {
	if !v.Silent {
		return nil
	}

	return fmt.Errorf("the VM of %s (VMID %d) is to be changed, and its host %s does not answer: start the host, or take the change back (%w)", name, v.ID, v.Host,
		proxmoxapi.ErrHostSilent)
}

// stuckVM is the VM of a node that goes, on a host that does not answer: Proxmox VE cannot delete it.
type stuckVM struct {
	node string
	// vms are all that it may be: once a host has been silent for long, the names of its VMs are forgotten.
	vms []proxmoxapi.VM
}

// stranded finds the VM of a node that goes, where its host does not answer; nil: it does, or Proxmox VE says nothing.
func stranded(ctx context.Context, proxmox Proxmox, p *plan.Plan, name string) *stuckVM {
	listed, err := proxmox.VMs(ctx)
	if err != nil {
		return nil // the provider is about to say so
	}

	planned := map[int]string{}
	for _, n := range p.Nodes() {
		planned[n.VMID] = n.Name
	}

	s := &stuckVM{node: name}

	for _, v := range listed {
		of, stays := planned[v.ID]

		switch {
		case stays && of != name, !stays && (!ofCluster(v, p) || v.Name != name && v.Name != ""):
			continue
		}

		if now, there, err := proxmox.Find(ctx, v.ID); err == nil && there && now.Silent {
			s.vms = append(s.vms, now)
		}
	}

	if len(s.vms) == 0 {
		return nil
	}

	return s
}

func (s *stuckVM) String() string {
	var all []string
	for _, v := range s.vms {
		all = append(all, fmt.Sprintf("VM %d on host %s", v.ID, v.Host))
	}

	return strings.Join(all, " or ") + ", which does not answer"
}

// before is why a node does not leave yet: what comes after that could not be done.
func (s *stuckVM) before() error {
	return lifecycle.Refusal{
		Rule: fmt.Sprintf("the VM of %s cannot be deleted: it is %s", s.node, s),
		Remedy: fmt.Sprintf("start the host; or, if it is dead, name %s in lifecycle.forceRemove: the node leaves the cluster then, and its VM stays until the host is back, or is "+
			"forgotten by Proxmox VE", s.node),
	}
}

// foreseen is what a preview says of a node that leaves all the same.
func (s *stuckVM) foreseen() string {
	return fmt.Sprintf("%s leaves the cluster, but its VM cannot be deleted: it is %s", s.node, s)
}

// after is what is left to do once a node has left.
func (s *stuckVM) after() error {
	var files []string
	for _, v := range s.vms {
		files = append(files, fmt.Sprintf("/etc/pve/nodes/%s/qemu-server/%d.conf", v.Host, v.ID))
	}

	return fmt.Errorf("%s has left the cluster, and its VM is still there: it is %s. When the host is back, run 'pulumi up' again. If it never comes back, run 'rm %s' "+
		"on another host, then 'pulumi up --refresh'", s.node, s, strings.Join(files, " or "))
}
