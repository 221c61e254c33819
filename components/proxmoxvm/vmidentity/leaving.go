package vmidentity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// CheckDeletion says why what runs in a VM of the state must not be taken down before the VM is deleted: another VM has
// its VMID. It asks Proxmox VE again. name is that of the VM's resource. The UUID is the one that the VM shows, or one
// that no machine shows.
func (i *Identities) CheckDeletion(ctx context.Context, name string) (uuid string, err error) {
	if i == nil {
		return noUUID, nil
	}

	if err := i.waitRead(ctx); err != nil {
		return noUUID, fmt.Errorf("%s: %w", strings.TrimSuffix(name, tokens.VMSuffix), err)
	}

	i.mu.Lock()
	m, known := i.state[name]
	i.mu.Unlock()

	if !known {
		return noUUID, fmt.Errorf("%s: %w", strings.TrimSuffix(name, tokens.VMSuffix), ErrUnknown)
	}

	c, err := i.check(ctx, m.Machine, m.urn)
	if c.Verdict == VerdictUnknown {
		return noUUID, fmt.Errorf("%s: %w: %s", m.Name, ErrUnknown, c.Why)
	}

	// What would keep its VM is heard before the node is taken down.
	if err == nil {
		err = errors.Join(i.checkDeletable(m.Machine, c.Found), i.checkOnce(m.VMID))
	}

	return cmp.Or(c.Found.Config.UUID, noUUID), err
}

// noUUID is the UUID of no machine.
const noUUID = "of no VM"

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
	return spec.Blocked(s.undeletable(), "start the host; "+neverBack(s.node, s.vms))
}

func (s *UnreachableVM) undeletable() string {
	return fmt.Sprintf("the VM of %s cannot be deleted: it is %s", s.node, s)
}

// PreviewRemoval is what a preview says of a node that leaves all the same.
func (s *UnreachableVM) PreviewRemoval() string {
	return fmt.Sprintf("%s leaves the cluster, but its VM cannot be deleted: it is %s", s.node, s)
}

// LeftBehind is what is left to do once a node has left.
func (s *UnreachableVM) LeftBehind() error {
	return fmt.Errorf("%s has left the cluster, and its VM is still there: it is %s. When the host is back, run 'pulumi "+
		"up' again. If it never comes back, %s, then 'pulumi up --refresh'", s.node, s, removeByHand(s.node, s.vms))
}
