package k3s

import (
	"slices"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/plan"
)

// memberRemoval is what leaves etcd: the node, all servers that the plan does not have, and those whose machines are
// gone.
func (r *Removals) memberRemoval(l leavingNode, members []etcd.Member) etcd.MemberRemoval {
	removal := etcd.MemberRemoval{Members: members, Dead: slices.Clone(r.Plan.ForceRemove)}

	for _, m := range members {
		i := slices.IndexFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool { return n.Name == m.Name })
		gone := i >= 0 && r.Inventory.AbsentVMIDs()[r.Plan.ControlPlanes()[i].VMID]

		if i < 0 || gone || m.Name == l.name {
			removal.Leaving = append(removal.Leaving, m.Name)
		}

		if gone || m.Name == l.name && l.dead {
			removal.Dead = append(removal.Dead, m.Name)
		}
	}

	return removal
}
