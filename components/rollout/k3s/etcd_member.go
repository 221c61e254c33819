package k3s

import (
	"context"
	"slices"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
)

// etcdMembers are those of etcd, as Kubernetes knows them: those of servers, too, that the plan has no longer.
func (c *Cluster) etcdMembers(ctx context.Context, kube *kubeapi.Client) ([]etcd.Member, error) {
	servers, err := kube.Servers(ctx)
	if err != nil {
		return nil, err
	}

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return nil, err
	}

	var members []etcd.Member

	for _, n := range nodes {
		s, is := servers[n.Name]
		if !is || s.Member == "" {
			continue
		}

		m := etcd.Member{Name: n.Name, Learner: s.Learner}

		// What Kubernetes says of one that was shut down is old. A planned one may have been started since.
		if s.Leaving && !c.isPlannedServer(n.Name) {
			m.Problem = shutDownProblem
		} else if m.Problem = c.serverProblem(ctx, n); s.Leaving && m.Problem != "" {
			m.Problem = shutDownProblem
		}

		members = append(members, m)
	}

	return members, nil
}

// shutDownProblem is what is wrong with a server whose removal was begun.
const shutDownProblem = "its VM is shut down for the removal"

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
