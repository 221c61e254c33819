package vmidentity

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// CheckReachable is why a VM cannot be changed whose host does not answer; nil: its host does.
func CheckReachable(v proxmoxapi.VM, name string) error {
	if !v.Unreachable {
		return nil
	}

	return fmt.Errorf("the VM of %s (VMID %d) is to be changed, and its host %s does not answer: start the host, "+
		"or revert the change; %s (%w)", name, v.ID, v.Host, (&UnreachableVM{name, []proxmoxapi.VM{v}}).neverBack(),
		proxmoxapi.ErrHostUnreachable)
}

// UnreachableVM is the VM of a node that goes, on a host that does not answer: Proxmox VE cannot delete it.
type UnreachableVM struct {
	node string
	// vms are all that it may be: once a host has been silent for long, the names of its VMs are forgotten.
	vms []proxmoxapi.VM
}

// FindUnreachable finds the VM of a node that goes, where its host does not answer; nil: it does, or Proxmox VE says
// nothing.
func FindUnreachable(ctx context.Context, proxmox Proxmox, p *plan.Plan, name string) *UnreachableVM {
	listed, err := proxmox.VMs(ctx)
	if err != nil {
		return nil // the provider is about to say so
	}

	planned := map[int]string{}
	for _, n := range p.Nodes() {
		planned[n.VMID] = n.Name
	}

	s := &UnreachableVM{node: name}

	for _, v := range listed {
		of, stays := planned[v.ID]

		switch {
		case v.Template, v.Container,
			stays && of != name, !stays && (!OfCluster(v, p) || v.Name != name && v.Name != ""):
			continue
		}

		if now, there, err := proxmox.Find(ctx, v.ID); err == nil && there && now.Unreachable {
			s.vms = append(s.vms, now)
		}
	}

	if len(s.vms) == 0 {
		return nil
	}

	return s
}

// String names the VM, or those that it may be.
func (s *UnreachableVM) String() string {
	var all []string
	for _, v := range s.vms {
		all = append(all, fmt.Sprintf("VM %d on host %s", v.ID, v.Host))
	}

	return strings.Join(all, " or ") + ", which does not answer"
}

// BlocksRemoval is why a node does not leave yet: what comes after that could not be done.
func (s *UnreachableVM) BlocksRemoval() error {
	return spec.Blocked(s.undeletable(),
		fmt.Sprintf("start the host; or, if it is dead, name %s in lifecycle.forceRemove: the node then leaves the "+
			"cluster, and its VM stays until the host is back, or is removed from Proxmox VE", s.node))
}

// BlocksRecovery is why a control plane is not replaced by one that starts from a snapshot. No cluster is there that it
// could leave: with its VM, nothing of it is left.
func (s *UnreachableVM) BlocksRecovery() error {
	return spec.Blocked(s.undeletable(), "start the host; "+s.neverBack())
}

func (s *UnreachableVM) undeletable() string {
	return fmt.Sprintf("the VM of %s cannot be deleted: it is %s", s.node, s)
}

// neverBack is what to do where the host is lost for good.
func (s *UnreachableVM) neverBack() string {
	return fmt.Sprintf("if it never comes back, %s, remove the host from proxmox.hosts, then run 'pulumi up --refresh'",
		s.removeByHand())
}

// PreviewRemoval is what a preview says of a node that leaves all the same.
func (s *UnreachableVM) PreviewRemoval() string {
	return fmt.Sprintf("%s leaves the cluster, but its VM cannot be deleted: it is %s", s.node, s)
}

// LeftBehind is what is left to do once a node has left.
func (s *UnreachableVM) LeftBehind() error {
	return fmt.Errorf("%s has left the cluster, and its VM is still there: it is %s. When the host is back, run 'pulumi "+
		"up' again. If it never comes back, %s, then 'pulumi up --refresh'", s.node, s, s.removeByHand())
}

// removeByHand is how the VM is removed without its host.
func (s *UnreachableVM) removeByHand() string {
	var files []string
	for _, v := range s.vms {
		files = append(files, fmt.Sprintf("/etc/pve/nodes/%s/qemu-server/%d.conf", v.Host, v.ID))
	}

	if len(files) == 1 {
		return fmt.Sprintf("run 'rm %s' on another host", files[0])
	}

	return fmt.Sprintf("remove, on another host, the one of these files that has its name "+
		"('grep -l \"^name: %s$\" %s')", s.node, strings.Join(files, " "))
}
