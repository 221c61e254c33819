package components

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/k3s"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/vmrestart"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// k3sHooks are the hooks of one cluster of K3s.
type k3sHooks struct {
	// limiter is shared by all that take a running node down.
	limiter *rollout.Limiter
	// upgrades go to another version of K3s.
	upgrades *rollout.Rollout
	// inside is what runs in the VMs.
	inside *k3sInside

	vmHooks

	identities *proxmoxvm.Identities

	// joined runs before a node counts as one: it is ready in Kubernetes, and cloud-init has done what it does.
	joined *pulumi.ResourceHook
	// upgraded runs before another version of K3s is noted of a node, and sees to it that the node runs it.
	upgraded *pulumi.ResourceHook
	// leaves runs before a node is removed, and takes it out of the cluster, or refuses that. It runs in previews, too.
	leaves *pulumi.ResourceHook
}

func (b *k3sBuilder) registerHooks() error {
	var errs []error

	register := hookutil.Registering(b.ctx, b.name, &errs)
	say := hookutil.Progress(b.ctx, b.name)
	b.hooks.limiter = rollout.NewLimiter(max(b.Plan.MaxUnavailable, 1))
	inside := &k3sInside{
		k3sServers: serversOf(b.Plan, b.servers), ctx: b.ctx, kubeconfig: b.admin,
		discovery: proxmoxvm.DiscoveryOf(b.Plan, b.proxmox),
		say:       say,
	}
	b.hooks.inside = inside
	b.hooks.upgrades = rollout.New(b.Plan, b.hooks.limiter, say)

	b.hooks.identities = proxmoxvm.NewIdentities(b.ctx, b.Plan, b.proxmox, b.report.VM)
	b.hooks.deletions = !b.Plan.Teardown || b.destroying
	restarted := vmrestart.New(vmrestart.Options{
		Program: programOf(b.ctx, b.name), Plan: b.Plan, Proxmox: b.proxmox, Permissions: b.report,
		Rollout: rollout.New(b.Plan, b.hooks.limiter, say), Nodes: nodesBy(b.Plan, b.name, "-vm"), System: b.hooks.inside,
		Identities: b.hooks.identities,
	})
	b.datastore = &k3sDatastore{
		k3sServers: serversOf(b.Plan, b.servers), proxmox: b.proxmox, report: b.report, identities: b.hooks.identities,
	}

	errs = append(errs, b.hooks.vmHooks.register(b.ctx, b.name, restarted, register))
	register(&b.hooks.joined, "node-joined", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		j, err := b.joining(args.Name)
		if err != nil {
			return err
		}

		if err := j.wait(c, j.plan.ReadyTimeout, say); err != nil {
			return fmt.Errorf("%s has not joined: %w", j.node.Name, err)
		}

		return nil
	})

	r := &k3sRemoval{
		k3sDatastore: b.datastore, ctx: b.ctx, limiter: b.hooks.limiter, say: say,
		learn: inside.learn, nodes: nodesBy(b.Plan, b.name, "-joined"),
	}
	register(&b.hooks.leaves, "node-leaves", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return r.before(hookutil.Deleting(c), args)
	}, &pulumi.ResourceHookOptions{OnDryRun: true})

	register(&b.hooks.upgraded, "node-upgraded", b.upgraded, &pulumi.ResourceHookOptions{OnDryRun: true})

	return errors.Join(errs...)
}

// joining is the node of a resource, on its way into the cluster.
func (b *k3sBuilder) joining(resource string) (*joining, error) {
	for _, n := range b.Plan.Nodes() {
		if childName(b.name, n)+"-joined" == resource {
			return &joining{node: n, plan: b.Plan, proxmox: b.proxmox, known: b.servers, datastore: b.datastore,
				identities: b.hooks.identities}, nil
		}
	}

	return nil, fmt.Errorf("%s belongs to no node of the plan", resource)
}

// joining is one node on its way into the cluster.
type joining struct {
	node    plan.Node
	plan    *plan.Plan
	proxmox Proxmox
	// known are addresses by node name, and the kubeconfig by no name.
	known *proxmoxvm.AddressBook
	// datastore tells the first server which etcd it has; nil: nothing does.
	datastore *k3sDatastore
	// identities tell the node's VM from another.
	identities *proxmoxvm.Identities

	told   bool
	looked time.Time
	setUp  string // what is still missing of the machine's own set-up, as it was seen last
	failed string // what has gone wrong in it
}

// lookEvery is how often the guest agent is asked for files.
const lookEvery = 3 * time.Second

// wait waits until the node has joined. Where it cannot any more, or has not in time, the error shows what the machine
// says.
func (j *joining) wait(ctx context.Context, timeout time.Duration, say wait.Say) error {
	err := wait.Until(ctx, timeout, say, func(ctx context.Context) (string, error) {
		if err := j.look(ctx); err != nil {
			return "", err
		}

		if waitingFor, err := j.tell(ctx); waitingFor != "" || err != nil {
			return waitingFor + j.failed, err
		}

		if missing := j.missing(ctx); missing != "" {
			return missing + j.failed, nil
		}

		return j.setUp, nil
	})
	if err == nil {
		return nil
	}

	// The wait may have ended with the context; its logs are wanted all the same, unless somebody has had enough.
	if ctx.Err() != nil {
		return err
	}

	return fmt.Errorf("%w\n%s", err, j.logs(ctx))
}

// tell tells the first server, once, which etcd it is to have.
func (j *joining) tell(ctx context.Context) (waitingFor string, err error) {
	if j.told || j.datastore == nil || j.node.Name != j.plan.ControlPlanes()[0].Name {
		return "", nil
	}

	waitingFor, err = j.datastore.tell(ctx, j.node)
	j.told = waitingFor == "" && err == nil

	return waitingFor, err
}

// asked are those who can say whether the node is there: a server itself, for its own API counts, and any server of an
// agent.
func (j *joining) asked() []plan.Node {
	if j.node.Role == spec.RoleControlPlane {
		return []plan.Node{j.node}
	}

	return j.plan.ControlPlanes()
}

// missing is what the node lacks in Kubernetes, asked of the servers that are known.
func (j *joining) missing(ctx context.Context) string {
	api, err := serversOf(j.plan, j.known).first(ctx, j.asked())
	if err != nil {
		return err.Error()
	}

	n, there, err := api.Node(ctx, j.node.Name)

	switch {
	case err != nil:
		return fmt.Sprintf("the Kubernetes API (%v)", wait.Reason(err))
	case !there:
		return j.node.Name + " to join Kubernetes"
	case n.Kubelet != j.plan.K3s.Version:
		return fmt.Sprintf("%s to run K3s %s (it runs %s)", j.node.Name, j.plan.K3s.Version, n.Kubelet)
	case !n.Ready:
		return j.node.Name + " to be ready in Kubernetes"
	default:
		return ""
	}
}

// look reads from time to time, through the guest agent, how the machine gets on. It is an error when it has given up.
// A machine that does not answer hides nothing that Kubernetes would not show.
func (j *joining) look(ctx context.Context) error {
	if time.Since(j.looked) < lookEvery {
		return nil
	}

	j.looked, j.setUp, j.failed = time.Now(), "", ""

	machine, there, err := j.proxmox.Find(ctx, j.node.VMID)
	if err != nil || !there {
		return nil //nolint:nilerr // asked again, and not what is waited for
	}

	if reason, err := j.proxmox.GuestFile(ctx, machine, k3s.FatalFile); err == nil && strings.TrimSpace(reason) != "" {
		return errors.New(strings.TrimSpace(reason))
	}

	if status, err := j.proxmox.GuestFile(ctx, machine, k3s.CloudInitStatus); err == nil {
		switch finished, failed, err := k3s.Finished(status); {
		case err != nil:
		case !finished:
			j.setUp = "cloud-init of " + j.node.Name + " to finish"
		case len(failed) > 0:
			// The installation makes good for much of it, but not for all.
			j.failed = "; its cloud-init has failed: " + strings.Join(failed, "; ")
		}
	}

	return nil
}

// tail is how much of a log is shown: more than the installation shows of K3s' own.
const tail = 25

// logs are the ends of what the machine has logged, or why they cannot be had.
func (j *joining) logs(ctx context.Context) string {
	machine, there, err := j.proxmox.Find(ctx, j.node.VMID)
	if err == nil && !there {
		err = fmt.Errorf("there is no VM with VMID %d", j.node.VMID)
	}

	var (
		shown  []string
		advice string
	)

	for _, log := range []string{k3s.InstallLog, k3s.CloudInitLog} {
		if err != nil {
			break
		}

		var text string
		if text, err = j.proxmox.GuestFile(ctx, machine, log); err == nil {
			end := k3s.Tail(text, tail)
			shown = append(shown, log+" ends with:\n"+indented(end))
			advice = cmp.Or(advice, k3s.Advice(end))
		}
	}

	if err != nil {
		shown = append(shown, fmt.Sprintf("the machine's logs cannot be read through its guest agent: %v\nlog in, and see "+
			"them: ssh %s@%s sudo tail %s %s",
			whyUnread(err), j.plan.K3s.User, j.known.Get(j.node.Name), k3s.InstallLog, k3s.CloudInitLog))
	}

	if advice != "" {
		shown = append(shown, advice)
	}

	return strings.Join(shown, "\n")
}

// whyUnread names what to allow where the login may not read files of guests.
func whyUnread(err error) error {
	if errors.Is(err, proxmoxapi.ErrRefused) {
		return fmt.Errorf("%w; give its role VM.GuestAgent.FileRead (before Proxmox VE 9: VM.Monitor)", err)
	}

	return err
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }
