package k3s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// Removals decide whether a node may lose its machine, and take it out of the cluster before it does.
type Removals struct{ *Cluster }

// leavingNode is a node whose membership is about to be deleted, and its VM after it.
type leavingNode struct {
	name string
	// vm is the name of the resource of its VM.
	vm string
	// vmid and uuid are those of its machine, as they were when it joined; none where the state does not know.
	vmid int
	uuid string
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
	// dead says that it is known to be gone, or said to be.
	dead bool
}

// Remove runs before the membership of a node is deleted. Its error leaves the node as it is.
func (r *Removals) Remove(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)

	joined := hookutil.Unwrap(args.OldInputs["input"])
	if !joined.IsObject() {
		return nil
	}

	known := joined.ObjectValue()
	l := leavingNode{
		name: hookutil.String(known, "name"), vm: strings.TrimSuffix(args.Name, tokens.JoinedSuffix) + tokens.VMSuffix,
		vmid: int(hookutil.Number(known, "vmid")),
		uuid: hookutil.String(known, "uuid"),
	}

	if n, there := r.Nodes[args.Name]; there {
		l.planned, l.name = &n, n.Name

		if n.Name == r.Plan.ControlPlanes()[0].Name {
			r.existed.Store(true)
		}
	}

	if l.name == "" || r.Plan.Teardown {
		return nil
	}

	if err := r.locate(ctx); err != nil {
		return err
	}

	if l.planned != nil {
		gone, err := r.gone(ctx, l)

		switch {
		case errors.Is(err, proxmoxapi.ErrHostSilent) && slices.Contains(r.Plan.Replace, l.name):
			// FindUnreachable says what can be done there.
		case errors.Is(err, vmidentity.ErrOtherVM):
			return err
		case err != nil:
			return fmt.Errorf("%s: could not determine whether its machine is the one that joined: %w", l.name, err)
		case !gone && !slices.Contains(r.Plan.Replace, l.name):
			if !r.DryRun {
				r.Limiter.Stop(l.name)
			}

			return rollout.RefuseRemoval(l.name)
		case gone && l.planned.Role == spec.RoleWorker:
			return nil
		}

		l.dead = gone
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	kept := vmidentity.FindUnreachable(ctx, r.Proxmox, r.Plan, l.name)
	if kept != nil && !slices.Contains(r.Plan.ForceRemove, l.name) {
		return kept.BlocksRemoval()
	}

	if r.DryRun {
		if kept != nil {
			r.Warn(kept.PreviewRemoval())
		}

		return r.preview(ctx, l)
	}

	err := r.remove(ctx, l)
	if err == nil && kept != nil {
		// What is left to do concerns no other node.
		return kept.LeftBehind()
	}

	return err
}

// gone says whether the machine that has joined is no more, as when its VM was deleted outside of Pulumi: the VM that
// is there now is one that the program has made since. Where the state does not know which machine that was, Kubernetes
// does.
func (r *Removals) gone(ctx context.Context, l leavingNode) (bool, error) {
	if r.Inventory.AbsentVMIDs()[l.planned.VMID] {
		return true, nil
	}

	machine, there, err := r.Proxmox.Find(ctx, l.planned.VMID)
	if err != nil || !there {
		return !there && err == nil, err
	}

	was := l.uuid
	if was == "" {
		if was, err = r.machineOf(ctx, l.name); err != nil || was == "" {
			return false, err
		}
	}

	config, err := r.Proxmox.Config(ctx, machine)
	if err != nil {
		return false, err
	}

	if strings.EqualFold(was, config.UUID) {
		return false, nil
	}

	return true, vmidentity.CheckSetUp(l.name, vmidentity.Found{VM: machine, Config: config}, vmidentity.OwnerTags(r.Plan))
}

// machineOf is the SMBIOS UUID of a node, as Kubernetes has it.
func (r *Removals) machineOf(ctx context.Context, name string) (string, error) {
	kube, err := r.answering(ctx)
	if err != nil {
		// Only the machine that Kubernetes knows is worth anything to a cluster.
		return "", nil //nolint:nilerr // it stays then
	}

	return kube.Machine(ctx, name)
}

// role is what a node is to the cluster: one that the plan does not have is known to Kubernetes alone. In doubt it is a
// server, which goes by itself.
func (r *Removals) role(ctx context.Context, l leavingNode) spec.Role {
	if l.planned != nil {
		return l.planned.Role
	}

	kube, err := r.answering(ctx)
	if err != nil {
		return spec.RoleControlPlane
	}

	servers, err := kube.Servers(ctx)
	if _, is := servers[l.name]; err == nil && !is {
		return spec.RoleWorker
	}

	return spec.RoleControlPlane
}

// preview evaluates the removal in a preview. A cluster that would be lost is an error.
func (r *Removals) preview(ctx context.Context, l leavingNode) error {
	kube, err := r.others(ctx, l)

	switch {
	case err != nil:
		return fmt.Errorf("%s is not removed: %w", l.name, err)
	case kube == nil:
		return nil
	}

	members, err := r.etcdMembers(ctx, kube)
	if err != nil {
		r.Warn(fmt.Sprintf("could not determine whether %s may leave the cluster: %v", l.name, err))

		return nil
	}

	if !slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Name == l.name }) {
		return nil
	}

	// New servers have joined when it leaves, unless they replace it.
	for _, n := range r.Plan.ControlPlanes() {
		if l.planned == nil && !slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Name == n.Name }) {
			members = append(members, etcd.Member{Name: n.Name})
		}
	}

	return rollout.PreviewRemoval(l.name, r.nodeRemoval(l, members), r.Warn)
}

// others is Kubernetes by a server that stays. There is no client, and no error, where nothing has to be taken out of a
// cluster: the machine has etcd again, or an empty cluster is wanted.
func (r *Removals) others(ctx context.Context, l leavingNode) (*kubeapi.Client, error) {
	others := slices.DeleteFunc(slices.Clone(r.Plan.ControlPlanes()), func(n plan.Node) bool { return n.Name == l.name })

	kube, unreachable, err := r.ask(ctx, others)
	if kube != nil || err != nil {
		return kube, err
	}

	if l.planned == nil || l.planned.Role != spec.RoleControlPlane {
		return nil, rollout.NoneReachable(unreachable)
	}

	own, why, err := r.ask(ctx, []plan.Node{*l.planned})

	switch {
	case err != nil:
		return nil, err
	case l.dead && own != nil:
		// A snapshot was restored there.
		return nil, nil //nolint:nilnil // nothing has to be done
	case own != nil:
		return own, nil
	case l.dead && r.noServerLeft(l.name):
		if r.Plan.AcceptEmpty {
			return nil, nil //nolint:nilnil // nothing is left
		}

		return nil, k3sconfig.Lost(l.name, r.Plan.Cluster)
	default:
		return nil, rollout.NoneReachable(append(unreachable, why...))
	}
}

// etcdMembers are those of etcd, as Kubernetes knows them.
func (r *Removals) etcdMembers(ctx context.Context, kube *kubeapi.Client) ([]etcd.Member, error) {
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

		if m.Problem = "its VM is shut down for the removal"; !s.Leaving {
			m.Problem = r.problem(ctx, n)
		}

		members = append(members, m)
	}

	return members, nil
}

// nodeRemoval is what leaves etcd: the node, all servers that the plan does not have, and those whose machines are
// gone.
func (r *Removals) nodeRemoval(l leavingNode, members []etcd.Member) etcd.MemberRemoval {
	d := etcd.MemberRemoval{Members: members, Dead: slices.Clone(r.Plan.ForceRemove)}

	for _, m := range members {
		i := slices.IndexFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool { return n.Name == m.Name })
		gone := i >= 0 && r.Inventory.AbsentVMIDs()[r.Plan.ControlPlanes()[i].VMID]

		if i < 0 || gone || m.Name == l.name {
			d.Leaving = append(d.Leaving, m.Name)
		}

		if gone || m.Name == l.name && l.dead {
			d.Dead = append(d.Dead, m.Name)
		}
	}

	return d
}

// remove takes a node out of the cluster, when the limiter admits it.
func (r *Removals) remove(ctx context.Context, l leavingNode) error {
	return rollout.Removals(r.Plan, r.Limiter, r.Progress).Disrupt(ctx, plan.Node{Name: l.name, Role: r.role(ctx, l)},
		&nodeRemoval{Removals: r, leavingNode: l}, l.name+" is not removed")
}

// nodeRemoval takes a node out of the cluster: its pods, its member of etcd, its Node. Of one that is said to be dead,
// nothing is waited for.
type nodeRemoval struct {
	*Removals
	leavingNode

	kube *kubeapi.Client
	// server is what Kubernetes knows of a server; nil: it is none.
	server *kubeapi.Server
	// ready says that the node is ready, shut that an interrupted run has shut its VM down.
	ready, shut bool
}

// Evaluate finds out whether the node may leave, and whether it can.
func (n *nodeRemoval) Evaluate(ctx context.Context) (rollout.Change, error) {
	kube, err := n.others(ctx, n.leavingNode)
	if err != nil || kube == nil {
		return rollout.Change{NotJoined: true}, err
	}

	if n.kube, err = kube.WithRetry(n.Plan.SettleTimeout, n.Progress, n.addresses()...); err != nil {
		return rollout.Change{}, err
	}

	servers, err := n.kube.Servers(ctx)
	if err != nil {
		return rollout.Change{}, err
	}

	if server, is := servers[n.name]; is {
		n.server, n.shut = &server, server.Leaving && n.off(ctx, n.leavingNode, server)
	}

	n.dead = n.dead || slices.Contains(n.Plan.ForceRemove, n.name)

	if err := n.CheckDisruption(ctx, impact.EffectRemove); err != nil {
		return rollout.Change{}, err
	}

	if exists, err := n.waitReady(ctx); err != nil || !exists {
		return rollout.Change{NotJoined: true}, err
	}

	return rollout.Change{
		Effect: impact.EffectRemove, Drain: n.drain, Acts: []rollout.Act{{Effect: impact.EffectRemove, Do: n.leave}},
	}, nil
}

// CheckDisruption waits until etcd can do without a server for good. Which machine the node runs on is looked at last,
// right before anything is done to it: a newer copy of the state may have replaced both.
func (n *nodeRemoval) CheckDisruption(ctx context.Context, _ impact.Effect) error {
	if err := n.waitRemovable(ctx); err != nil {
		return err
	}

	return n.checkMachine(ctx)
}

func (n *nodeRemoval) waitRemovable(ctx context.Context) error {
	if n.server == nil || n.server.Member == "" {
		return nil
	}

	// Its VM may have been started since.
	n.shut = n.server.Leaving && n.off(ctx, n.leavingNode, *n.server)

	return rollout.WaitRemovable(ctx, n.Plan, n.Progress, func() (d etcd.MemberRemoval, _ string, err error) {
		members, err := n.etcdMembers(ctx, n.kube)
		d = n.nodeRemoval(n.leavingNode, members)

		if n.shut {
			d.Dead = append(d.Dead, n.name)
		}

		return d, "", err
	})
}

// Backup keeps etcd as it is now.
func (n *nodeRemoval) Backup(ctx context.Context) error { return n.backupEtcd(ctx, n.name) }

// Kubernetes is that of the other servers.
func (n *nodeRemoval) Kubernetes(context.Context) (*kubeapi.Client, error) { return n.kube, nil }

// WaitRejoined is not asked: the node is gone.
func (*nodeRemoval) WaitRejoined(context.Context) error { return nil }

// leave takes the node out of etcd and of Kubernetes.
func (n *nodeRemoval) leave(ctx context.Context) error {
	if n.server != nil {
		if err := n.removeEtcdMember(ctx); err != nil {
			return err
		}

		// That takes its time.
		if err := n.checkMachine(ctx); err != nil {
			return errors.Join(err, n.kube.Uncordon(context.WithoutCancel(ctx), n.name))
		}
	}

	if err := n.kube.DeleteNode(ctx, n.name); err != nil {
		return fmt.Errorf("could not delete its node from Kubernetes: %w", err)
	}

	return n.kube.WaitForgotten(ctx, n.name, n.Plan.NodeTimeout, n.Progress)
}

// checkMachine holds that the node is the one of the state: its VM by Proxmox VE, its Node by Kubernetes. A node that
// is said to be dead is removed although that is not known.
func (n *nodeRemoval) checkMachine(ctx context.Context) error {
	// This run has found its VM to be ours, or has made it.
	if n.planned != nil && n.Identities.CheckNow(ctx, *n.planned) == nil {
		return nil
	}

	_, err := n.Identities.CheckLeaving(ctx, n.vm)
	if err == nil {
		err = n.checkNode(ctx)
	}

	switch {
	case err == nil:
		return nil
	case !errors.Is(err, vmidentity.ErrUnknown) || ctx.Err() != nil:
		return err
	case !n.dead:
		return rollout.SuggestForce(err)
	}

	n.Warn(fmt.Sprintf("%s is removed although it could not be identified as the machine of the state: %v", n.name,
		err))

	return nil
}

// checkNode compares the machine that Kubernetes has a node on with that of the state. A Node may be left of a machine
// that was made again and has not joined: it is not ready.
func (n *nodeRemoval) checkNode(ctx context.Context) error {
	machine, err := n.kube.Machine(ctx, n.name)
	if err != nil {
		return fmt.Errorf("%w: %w", vmidentity.ErrUnknown, err)
	}

	var ours []string

	for _, uuid := range []string{n.uuid, n.Identities.StateUUID(ctx, n.vm)} {
		if strings.EqualFold(uuid, machine) {
			return nil
		}

		if uuid != "" && !slices.Contains(ours, uuid) {
			ours = append(ours, uuid)
		}
	}

	if machine == "" || len(ours) == 0 {
		return nil
	}

	now, there, err := n.kube.Node(ctx, n.name)

	switch why := fmt.Sprintf("Kubernetes has %s on the machine with SMBIOS UUID %s, and the state on %s", n.name, machine,
		strings.Join(ours, " or ")); {
	case err != nil:
		return fmt.Errorf("%w: %w", vmidentity.ErrUnknown, err)
	case !there:
		return nil
	case now.Ready:
		return fmt.Errorf("%s: another copy of the state has replaced it, and it is not touched. Use the newest state", why)
	default:
		return fmt.Errorf("%w: %s", vmidentity.ErrUnknown, why)
	}
}

// waitReady finds out whether the node is ready in Kubernetes, and exists there at all. One that K3s is restarted on
// gets time to be ready.
func (n *nodeRemoval) waitReady(ctx context.Context) (exists bool, err error) {
	grace := wait.GracePeriod{Bound: min(n.Plan.SettleTimeout, n.Plan.NodeTimeout)}

	// The grace period ends before the wait does.
	err = wait.Until(ctx, n.Plan.NodeTimeout+n.Plan.SettleTimeout, n.Progress, func(ctx context.Context) error {
		now, there, err := n.kube.Node(ctx, n.name)
		n.ready, exists = now.Ready, there

		if err != nil || !there || n.ready || n.dead || n.shut || grace.Expired() {
			return err
		}

		return wait.For("%s to be ready in Kubernetes", n.name)
	})

	return exists, err
}

// drain takes the pods off a node.
func (n *nodeRemoval) drain(ctx context.Context, d rollout.Drain) (err error) {
	switch {
	case n.ready:
		err = d.Run(ctx)
	case n.dead || n.shut:
		// Its pods are lost with it.
		err = d.Cordon(ctx)
	default:
		return spec.Blocked(
			"it does not report to Kubernetes",
			"bring it back, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
		)
	}

	switch {
	case err == nil:
		return nil
	case !n.dead:
		return rollout.SuggestForce(err)
	}

	n.Warn(fmt.Sprintf("%s is removed although it could not be drained: %v", n.name, err))

	return nil
}

// removeEtcdMember takes a server out of etcd. Its VM is shut down before: a K3s whose member is removed would be
// started again by systemd, and join as another one.
func (n *nodeRemoval) removeEtcdMember(ctx context.Context) error {
	machine, there, err := n.machineOfServer(ctx, n.leavingNode, *n.server)

	switch {
	case err == nil && there && !machine.Stopped:
		n.Progress("the VM of " + n.name + " is shut down")

		if err = n.kube.MarkLeaving(ctx, n.name); err == nil {
			err = n.Proxmox.Shutdown(ctx, machine)
		}
	case err == nil && !there && n.ready:
		err = errors.New("no VM with its SMBIOS UUID is found, and it must be off before it leaves etcd")
	}

	if err != nil && (n.ready || !n.dead) {
		return errors.Join(err, n.kube.Uncordon(context.WithoutCancel(ctx), n.name))
	}

	if err != nil {
		n.Warn(fmt.Sprintf("%s is removed although it is unknown whether its VM is off: %v", n.name, err))
	}

	n.Progress(n.name + " leaves etcd")

	if err := n.kube.RemoveMember(ctx, n.name, n.Plan.NodeTimeout, n.Progress); err != nil {
		return fmt.Errorf("etcd did not remove its member: %w", err)
	}

	return nil
}

// machineOfServer is the VM of a server, told from all others by its SMBIOS UUID: as it was when it joined, and as
// Kubernetes has it.
func (r *Removals) machineOfServer(ctx context.Context, l leavingNode, s kubeapi.Server) (proxmoxapi.VM, bool, error) {
	vms, err := r.Proxmox.VMs(ctx)
	if err != nil {
		return proxmoxapi.VM{}, false, err
	}

	for _, v := range vms {
		named := v.Name == l.name || v.Name == "" && vmidentity.OfCluster(v, r.Plan)
		if v.Container || v.Template || !(v.ID == l.vmid || named || l.planned != nil && v.ID == l.planned.VMID) {
			continue
		}

		config, err := r.Proxmox.Config(ctx, v)
		if err != nil {
			return v, false, err
		}

		if config.UUID != "" && strings.EqualFold(config.UUID, s.Machine) &&
			(l.uuid == "" || strings.EqualFold(config.UUID, l.uuid)) {
			return r.now(ctx, v)
		}
	}

	return proxmoxapi.VM{}, false, nil
}

// now is a VM as its host knows it: only that says whether it is off.
func (r *Removals) now(ctx context.Context, v proxmoxapi.VM) (proxmoxapi.VM, bool, error) {
	found, there, err := r.Proxmox.Find(ctx, v.ID)
	if err == nil && found.Silent {
		err = fmt.Errorf("host %s of VM %d: %w", v.Host, v.ID, proxmoxapi.ErrHostSilent)
	}

	return found, there, err
}

// off says whether the VM of a server is off.
func (r *Removals) off(ctx context.Context, l leavingNode, s kubeapi.Server) bool {
	machine, there, err := r.machineOfServer(ctx, l, s)

	return err == nil && there && machine.Stopped
}
