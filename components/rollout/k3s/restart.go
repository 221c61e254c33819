package k3s

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// nodeRestart is the restart of a node's VM.
type nodeRestart struct {
	disruptedNode

	// bootBefore is the boot that ends; empty: it is not known.
	bootBefore string
}

// Restart is the restart of the VM of a node.
func (c *Cluster) Restart(n plan.Node) rollout.Node {
	return &nodeRestart{disruptedNode: disruptedNode{c, n}}
}

// Evaluate finds out how the node is. Without a server that answers, a server may go where no quorum is lost with it.
func (k *nodeRestart) Evaluate(ctx context.Context) (rollout.Work, error) {
	if err := k.locate(ctx); err != nil {
		return rollout.Work{}, err
	}

	status, err := k.waitHealthy(ctx, impact.EffectReboot)
	unreachable := !status.answered && k.node.Role == spec.RoleControlPlane && ctx.Err() == nil

	switch {
	case unreachable:
		if err := k.checkNoQuorum(ctx); err != nil {
			return rollout.Work{}, err
		}
	case err != nil:
		return rollout.Work{}, err
	case !status.registered:
		return rollout.Work{NotInCluster: true}, nil
	}

	if unreachable || !status.Ready {
		k.Progress(k.node.Name + " is not ready in Kubernetes: its VM is restarted as it is")

		return rollout.Work{Effect: impact.EffectReboot, Unreachable: true}, nil
	}

	k.bootBefore = status.Boot

	return rollout.Work{Effect: impact.EffectReboot, KeepPods: k.isOnlyNode()}, nil
}

// checkNoQuorum checks that a server may stop while no server answers: those that may run are no quorum with it, by
// what Proxmox VE says of their VMs. They may well be a cluster that merely cannot be reached from here.
func (k *nodeRestart) checkNoQuorum(ctx context.Context) error {
	servers, err := k.serverVMs(ctx)
	if err != nil {
		return spec.Blocked(fmt.Sprintf("no server answers, and it is unknown which servers run: %v", err), "make "+
			"sure that Proxmox VE answers; then run 'pulumi up' again")
	}

	running := []string{k.node.Name}

	for _, name := range slices.Sorted(maps.Keys(servers)) {
		v := servers[name]

		switch now, there, err := k.Proxmox.Find(ctx, v); {
		case name == k.node.Name, err == nil && (!there || now.Stopped):
		case err != nil || now.Unreachable:
			running = append(running, name+" (unknown)")
		default:
			running = append(running, name)
		}
	}

	if len(servers) == 1 || len(running) < etcd.QuorumSize(len(servers)) {
		return nil
	}

	return spec.Blocked(fmt.Sprintf("no server answers, and it is unknown whether etcd can do without this one: "+
		"the VMs of %d of %d servers run (%s), and may be a cluster that is only unreachable from here", len(running),
		len(servers),
		strings.Join(running, ", ")),
		fmt.Sprintf("make sure that port 6443 of the servers is reachable from here; or, if the cluster is down, "+
			"shut down the VM "+
			"of %s, whose settings are changed while it is off; then run 'pulumi up' again", k.node.Name))
}

// serverVMs are the VMIDs of the servers by name: those of the plan, and those that have left it and not the cluster.
func (k *nodeRestart) serverVMs(ctx context.Context) (map[string]int, error) {
	servers := map[string]int{}
	planned := map[int]bool{}

	for _, n := range k.Plan.ControlPlanes() {
		servers[n.Name], planned[n.VMID] = n.VMID, true
	}

	all, err := k.Proxmox.VMs(ctx)

	for _, v := range all {
		// A copy may have the name of a node.
		if _, known := servers[v.Label()]; !known && !planned[v.ID] && !v.Container && !v.Template &&
			vmidentity.OfCluster(v, k.Plan) && slices.Contains(v.Tags, string(spec.RoleControlPlane)) {
			servers[v.Label()] = v.ID
		}
	}

	return servers, err
}

// WaitRejoined waits until the node has booted again and is ready, a server by its own word: its API is there when its
// etcd is.
func (k *nodeRestart) WaitRejoined(ctx context.Context) error {
	n := k.node

	return wait.Until(ctx, k.Plan.UpgradeTimeout, k.Progress, func(ctx context.Context) error {
		if n.Role == spec.RoleControlPlane {
			// Its address may not have been known before.
			k.discovery.Locate(ctx, []plan.Node{n}, k.Addresses)

			if k.Addresses.Get(n.Name) == "" {
				return wait.For("%s to report its address", n.Name)
			}
		}

		kube, err := k.kubernetesAskingLast(ctx, n.Name)
		if err == nil && n.Role == spec.RoleControlPlane {
			kube, err = k.kubernetesOf(ctx, n.Name)
		}

		if err != nil {
			return wait.For("%v", err)
		}

		now, there, err := kube.Node(ctx, n.Name)

		switch {
		case err != nil:
			return wait.For("%s to be ready in Kubernetes (%v)", n.Name, wait.Reason(err))
		case !there:
			return wait.For("%s to join Kubernetes", n.Name)
		case k.bootBefore != "" && now.Boot == k.bootBefore:
			return wait.For("%s to restart", n.Name)
		case !now.Ready:
			return wait.For("%s to be ready in Kubernetes", n.Name)
		default:
			return nil
		}
	})
}

// PreviewRestart warns of what would keep the node from being restarted as it is now.
func (c *Cluster) PreviewRestart(ctx context.Context, n plan.Node) string {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	if n.Role != spec.RoleControlPlane {
		return ""
	}

	err := c.locate(ctx)
	if err == nil {
		_, err = c.checkStatus(ctx, n, impact.EffectReboot)
	}

	// What this update sets up has joined by then.
	if err != nil && !rollout.IsWaitingForJoin(err) {
		c.Warn(fmt.Sprintf("in the current state of the cluster, %s would not be disrupted: %v", n.Name, err))
	}

	return etcd.QuorumText(len(c.Plan.ControlPlanes()))
}
