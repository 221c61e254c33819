package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/k3s"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// k3sRemoval decides whether a node of K3s may lose its machine, and takes it out of the cluster before it does.
type k3sRemoval struct {
	*k3sDatastore

	ctx     *pulumi.Context
	limiter *rollout.Limiter
	say     wait.Say
	// learn finds out where the cluster is.
	learn func(context.Context) error
	// nodes of the plan, by the name of their membership.
	nodes map[string]plan.Node
}

// k3sLeaver is a node whose membership is about to be deleted, and its VM after it.
type k3sLeaver struct {
	name string
	// vmid and uuid are those of its machine, as they were when it joined; none where the state does not know.
	vmid int
	uuid string
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
	// dead says that it is known to be gone, or said to be.
	dead bool
}

// before runs before the membership of a node is deleted. Its error leaves the node as it is.
func (r *k3sRemoval) before(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	joined := hookutil.Unwrap(args.OldInputs["input"])
	if !joined.IsObject() {
		return nil
	}

	known := joined.ObjectValue()
	l := k3sLeaver{name: hookutil.String(known, "name"), vmid: int(hookutil.Number(known, "vmid")),
		uuid: hookutil.String(known, "uuid")}

	if n, there := r.nodes[args.Name]; there {
		l.planned, l.name = &n, n.Name

		if n.Name == r.plan.ControlPlanes()[0].Name {
			r.existed.Store(true)
		}
	}

	if l.name == "" || r.plan.Teardown {
		return nil
	}

	if err := r.learn(ctx); err != nil {
		return err
	}

	if l.planned != nil {
		gone, err := r.gone(ctx, l)

		switch {
		case errors.Is(err, proxmoxapi.ErrHostSilent) && slices.Contains(r.plan.Replace, l.name):
			// The next look says what can be done there.
		case errors.Is(err, proxmoxvm.ErrOtherVM):
			return err
		case err != nil:
			return fmt.Errorf("%s: whether its machine is the one that has joined is not known: %w", l.name, err)
		case !gone && !slices.Contains(r.plan.Replace, l.name):
			return r.keep(l)
		case gone && l.planned.Role == spec.RoleWorker:
			return nil
		}

		l.dead = gone
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	kept := proxmoxvm.FindUnreachable(ctx, r.proxmox, r.plan, l.name)
	if kept != nil && !slices.Contains(r.plan.ForceRemove, l.name) {
		return kept.BlocksRemoval()
	}

	if r.ctx.DryRun() {
		if kept != nil {
			r.warn(kept.PreviewRemoval())
		}

		return r.foresee(ctx, l)
	}

	err := r.remove(ctx, l)
	if err == nil && kept != nil {
		// What is left to do concerns no other node.
		return kept.LeftBehind()
	}

	return err
}

// keep refuses to take the machine of a node that stays: the cluster is being destroyed, or something else wants a new VM.
func (r *k3sRemoval) keep(l k3sLeaver) error {
	if !r.ctx.DryRun() {
		r.limiter.Stop(l.name)
	}

	return rollout.RefuseRemoval(l.name)
}

// gone says whether the machine that has joined is no more, as when its VM was deleted outside of Pulumi: the VM that is there now is
// one that the program has made since. Where the state does not know which machine that was, Kubernetes does.
func (r *k3sRemoval) gone(ctx context.Context, l k3sLeaver) (bool, error) {
	if r.report.AbsentVMIDs()[l.planned.VMID] {
		return true, nil
	}

	machine, there, err := r.proxmox.Find(ctx, l.planned.VMID)
	if err != nil || !there {
		return !there && err == nil, err
	}

	was := l.uuid
	if was == "" {
		if was, err = r.machineOf(ctx, l.name); err != nil || was == "" {
			return false, err
		}
	}

	config, err := r.proxmox.Config(ctx, machine)
	if err != nil {
		return false, err
	}

	if strings.EqualFold(was, config.UUID) {
		return false, nil
	}

	return true, proxmoxvm.CheckSetUp(l.name, proxmoxvm.Found{VM: machine, Config: config})
}

// machineOf is the SMBIOS UUID of a node, as Kubernetes has it.
func (r *k3sRemoval) machineOf(ctx context.Context, name string) (string, error) {
	kube, err := r.answering(ctx)
	if err != nil {
		// Only the machine that Kubernetes knows is worth anything to a cluster.
		return "", nil //nolint:nilerr // it stays then
	}

	return kube.Machine(ctx, name)
}

// role is what a node is to the cluster: one that the plan does not have is known to Kubernetes alone. In doubt it is a server,
// which goes by itself.
func (r *k3sRemoval) role(ctx context.Context, l k3sLeaver) spec.Role {
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

// foresee is the judgement in a preview. What is not in order now may be when it is carried out, so that is a warning; too few
// members are an error, and so is a cluster that would be lost.
func (r *k3sRemoval) foresee(ctx context.Context, l k3sLeaver) error {
	kube, err := r.others(ctx, l)

	switch {
	case err != nil:
		return fmt.Errorf("%s is not removed: %w", l.name, err)
	case kube == nil:
		return nil
	}

	members, err := r.members(ctx, kube)
	if err != nil {
		r.warn(fmt.Sprintf("whether %s may leave is not known: %v", l.name, err))

		return nil
	}

	if !slices.ContainsFunc(members, func(m lifecycle.Member) bool { return m.Name == l.name }) {
		return nil
	}

	// Those that are to come are there when it leaves, unless they come after it.
	for _, n := range r.plan.ControlPlanes() {
		if l.planned == nil && !slices.ContainsFunc(members, func(m lifecycle.Member) bool { return m.Name == n.Name }) {
			members = append(members, lifecycle.Member{Name: n.Name})
		}
	}

	return rollout.PreviewRemoval(l.name, r.departure(l, members), r.warn)
}

// warn shows what is no error. Where the program has ended already, nobody listens.
func (r *k3sRemoval) warn(message string) { _ = r.ctx.Log.Warn(message, nil) }

// others is Kubernetes by a server that stays. There is no client, and no error, where nothing has to be taken out of a cluster: the
// machine has etcd again, or an empty cluster is wanted.
func (r *k3sRemoval) others(ctx context.Context, l k3sLeaver) (*kubeapi.Client, error) {
	stay := slices.DeleteFunc(slices.Clone(r.plan.ControlPlanes()), func(n plan.Node) bool { return n.Name == l.name })

	kube, mutes, err := r.ask(ctx, stay)
	if kube != nil || err != nil {
		return kube, err
	}

	if l.planned == nil || l.planned.Role != spec.RoleControlPlane {
		return nil, rollout.NoneReachable(mutes)
	}

	own, why, err := r.ask(ctx, []plan.Node{*l.planned})

	switch {
	case err != nil:
		return nil, err
	case l.dead && own != nil:
		// Somebody has restored a snapshot there.
		return nil, nil //nolint:nilnil // nothing has to be done
	case own != nil:
		return own, nil
	case l.dead && r.lost(l.name):
		if r.plan.AcceptEmpty {
			return nil, nil //nolint:nilnil // nothing is left
		}

		return nil, k3s.Lost(l.name, r.plan.Cluster)
	default:
		return nil, rollout.NoneReachable(append(mutes, why...))
	}
}

// members are those of etcd, as Kubernetes knows them. One whose own API does not answer is not well: it answers when its etcd does.
func (r *k3sRemoval) members(ctx context.Context, kube *kubeapi.Client) ([]lifecycle.Member, error) {
	servers, err := kube.Servers(ctx)
	if err != nil {
		return nil, err
	}

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return nil, err
	}

	var members []lifecycle.Member

	for _, n := range nodes {
		s, is := servers[n.Name]
		if !is || s.Member == "" {
			continue
		}

		m := lifecycle.Member{Name: n.Name, Learner: s.Learner}

		switch {
		case s.Leaving:
			m.Problem = "its VM is shut down, to be removed"
		case !n.Ready:
			m.Problem = "it is not ready in Kubernetes"
		case r.known.Get(n.Name) != "":
			if own, err := r.apiOf(n.Name); err != nil {
				return nil, err
			} else if _, err := own.Nodes(ctx); err != nil {
				m.Problem = fmt.Sprintf("its API does not answer: %v", wait.Reason(err))
			}
		}

		members = append(members, m)
	}

	return members, nil
}

// departure is who leaves: the node, all servers that the plan does not have, and those whose machines are gone.
func (r *k3sRemoval) departure(l k3sLeaver, members []lifecycle.Member) lifecycle.Departure {
	d := lifecycle.Departure{Members: members, Dead: slices.Clone(r.plan.ForceRemove)}

	for _, m := range members {
		i := slices.IndexFunc(r.plan.ControlPlanes(), func(n plan.Node) bool { return n.Name == m.Name })
		gone := i >= 0 && r.report.AbsentVMIDs()[r.plan.ControlPlanes()[i].VMID]

		if i < 0 || gone || m.Name == l.name {
			d.Leaving = append(d.Leaving, m.Name)
		}

		if gone || m.Name == l.name && l.dead {
			d.Dead = append(d.Dead, m.Name)
		}
	}

	return d
}

// remove takes a node out of the cluster, when it is its turn.
func (r *k3sRemoval) remove(ctx context.Context, l k3sLeaver) error {
	return rollout.Removals(r.plan, r.limiter, r.say).Disrupt(ctx, plan.Node{Name: l.name, Role: r.role(ctx, l)},
		&k3sNodeRemoval{k3sRemoval: r, k3sLeaver: l}, l.name+" is not removed")
}

// k3sNodeRemoval takes a node out of the cluster: its pods, its member of etcd, its Node. Of one that is said to be dead, nothing
// is waited for.
type k3sNodeRemoval struct {
	*k3sRemoval
	k3sLeaver

	kube *kubeapi.Client
	// server is what Kubernetes knows of a server; nil: it is none.
	server *kubeapi.Server
	// ready says that the node is ready, shut that a run that was cut off after that has shut it down.
	ready, shut bool
}

// Evaluate finds out whether the node may leave, and whether it can.
func (n *k3sNodeRemoval) Evaluate(ctx context.Context) (rollout.Change, error) {
	kube, err := n.others(ctx, n.k3sLeaver)
	if err != nil || kube == nil {
		return rollout.Change{NotJoined: true}, err
	}

	if n.kube, err = kube.WithRetry(n.plan.SettleTimeout, n.say, n.addresses()...); err != nil {
		return rollout.Change{}, err
	}

	servers, err := n.kube.Servers(ctx)
	if err != nil {
		return rollout.Change{}, err
	}

	if server, is := servers[n.name]; is {
		n.server = &server
	}

	if err := n.CheckDisruption(ctx, lifecycle.Remove); err != nil {
		return rollout.Change{}, err
	}

	n.dead = n.dead || slices.Contains(n.plan.ForceRemove, n.name)
	n.shut = n.server != nil && n.server.Leaving && n.off(ctx, n.k3sLeaver, *n.server)

	there := false
	if n.ready, there, err = n.answers(ctx, n.kube, n.name, n.dead || n.shut); err != nil || !there {
		return rollout.Change{NotJoined: true}, err
	}

	return rollout.Change{
		Effect: lifecycle.Remove, Drain: n.drain, Acts: []rollout.Act{{Effect: lifecycle.Remove, Do: n.leave}},
	}, nil
}

// CheckDisruption waits until etcd can do without a server for good.
func (n *k3sNodeRemoval) CheckDisruption(ctx context.Context, _ lifecycle.Effect) error {
	if n.server == nil || n.server.Member == "" {
		return nil
	}

	return n.judge(ctx, n.kube, n.k3sLeaver, *n.server)
}

// Backup is left to K3s, which keeps snapshots of its etcd by itself.
func (*k3sNodeRemoval) Backup(context.Context) error { return nil }

// Kubernetes is that of the other servers.
func (n *k3sNodeRemoval) Kubernetes(context.Context) (*kubeapi.Client, error) { return n.kube, nil }

// WaitRejoined is not asked: the node is gone.
func (*k3sNodeRemoval) WaitRejoined(context.Context) error { return nil }

// leave takes the node out of etcd and of Kubernetes.
func (n *k3sNodeRemoval) leave(ctx context.Context) error {
	if n.server != nil {
		if err := n.withdraw(ctx, n.kube, n.k3sLeaver, *n.server, n.ready); err != nil {
			return err
		}
	}

	if err := n.kube.DeleteNode(ctx, n.name); err != nil {
		return fmt.Errorf("Kubernetes does not forget its node: %w", err)
	}

	return n.kube.WaitForgotten(ctx, n.name, n.plan.NodeTimeout, n.say)
}

// judge waits until etcd can do without the server for good, and says why not where it cannot.
func (r *k3sRemoval) judge(ctx context.Context, kube *kubeapi.Client, l k3sLeaver, s kubeapi.Server) error {
	shut := s.Leaving && r.off(ctx, l, s)

	return rollout.WaitRemovable(ctx, r.plan, r.say, func() (d lifecycle.Departure, _ string, err error) {
		members, err := r.members(ctx, kube)
		d = r.departure(l, members)

		if shut {
			d.Dead = append(d.Dead, l.name)
		}

		return d, "", err
	})
}

// answers says whether a node is ready in Kubernetes, and whether it is there at all. A restart of K3s is no silence.
func (r *k3sRemoval) answers(ctx context.Context, api *kubeapi.Client, name string, dead bool) (ready, there bool, err error) {
	patience := wait.Patience{Bound: min(r.plan.SettleTimeout, r.plan.NodeTimeout)}

	// The patience ends before the wait does.
	err = wait.Until(ctx, r.plan.NodeTimeout+r.plan.SettleTimeout, r.say, func(ctx context.Context) (string, error) {
		n, known, err := api.Node(ctx, name)
		ready, there = n.Ready, known

		if err != nil || !known || n.Ready || dead || patience.Over() {
			return "", err
		}

		return name + " to be ready in Kubernetes", nil
	})

	return ready, there, err
}

// drain takes the pods off a node.
func (n *k3sNodeRemoval) drain(ctx context.Context, d rollout.Drain) (err error) {
	switch {
	case n.ready:
		err = d.Run(ctx)
	case n.dead || n.shut:
		// Its pods are lost with it.
		err = d.Cordon(ctx)
	default:
		return lifecycle.Refusal{
			Rule:   "Kubernetes hears nothing of it",
			Remedy: "bring it back, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
		}
	}

	switch {
	case err == nil:
		return nil
	case !n.dead:
		return rollout.SuggestForce(err)
	}

	n.warn(fmt.Sprintf("%s is removed although its pods did not leave it: %v", n.name, err))

	return nil
}

// withdraw takes a server out of etcd. Its VM is shut down before: a K3s whose member is removed would be started again by systemd, and
// join as another one.
func (r *k3sRemoval) withdraw(ctx context.Context, kube *kubeapi.Client, l k3sLeaver, s kubeapi.Server, ready bool) error {
	machine, there, err := r.machine(ctx, l, s)

	switch {
	case err == nil && there && !machine.Stopped:
		r.say("the VM of " + l.name + " is shut down")

		if err = kube.MarkLeaving(ctx, l.name); err == nil {
			err = r.proxmox.Shutdown(ctx, machine)
		}
	case err == nil && !there && ready:
		err = errors.New("no VM with its SMBIOS UUID is found, and it must be off before it leaves etcd")
	}

	if err != nil && (ready || !l.dead) {
		return errors.Join(err, kube.Uncordon(context.WithoutCancel(ctx), l.name))
	}

	if err != nil {
		r.warn(fmt.Sprintf("%s is removed although its VM is not known to be off: %v", l.name, err))
	}

	r.say(l.name + " leaves etcd")

	if err := kube.RemoveMember(ctx, l.name, r.plan.NodeTimeout, r.say); err != nil {
		return fmt.Errorf("etcd does not let it go: %w", err)
	}

	return nil
}

// machine is the VM of a server, told from all others by its SMBIOS UUID: as it was when it joined, and as Kubernetes has it.
func (r *k3sRemoval) machine(ctx context.Context, l k3sLeaver, s kubeapi.Server) (proxmoxapi.VM, bool, error) {
	vms, err := r.proxmox.VMs(ctx)
	if err != nil {
		return proxmoxapi.VM{}, false, err
	}

	for _, v := range vms {
		named := v.Name == l.name || v.Name == "" && proxmoxvm.OfCluster(v, r.plan)
		if v.Container || v.Template || !(v.ID == l.vmid || named || l.planned != nil && v.ID == l.planned.VMID) {
			continue
		}

		config, err := r.proxmox.Config(ctx, v)
		if err != nil {
			return v, false, err
		}

		if config.UUID != "" && strings.EqualFold(config.UUID, s.Machine) && (l.uuid == "" || strings.EqualFold(config.UUID, l.uuid)) {
			return r.now(ctx, v)
		}
	}

	return proxmoxapi.VM{}, false, nil
}

// now is a VM as its host knows it: only that says whether it is off.
func (r *k3sRemoval) now(ctx context.Context, v proxmoxapi.VM) (proxmoxapi.VM, bool, error) {
	found, there, err := r.proxmox.Find(ctx, v.ID)
	if err == nil && found.Silent {
		err = fmt.Errorf("host %s of VM %d: %w", v.Host, v.ID, proxmoxapi.ErrHostSilent)
	}

	return found, there, err
}

// off says whether the VM of a server is off.
func (r *k3sRemoval) off(ctx context.Context, l k3sLeaver, s kubeapi.Server) bool {
	machine, there, err := r.machine(ctx, l, s)

	return err == nil && there && machine.Stopped
}
