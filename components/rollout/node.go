package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// Node is what a rollout asks about one node: of the system that runs on it, Talos or K3s, and of its peers.
type Node interface {
	// Evaluate says what is to be done to the node, now that it is its turn: what was found before may have changed, and a
	// run that was cut off may have done any of it.
	Evaluate(ctx context.Context) (Work, error)
	// WaitDisruptable waits until the cluster can do without the node, for good if it is removed. Its error says why it
	// cannot.
	WaitDisruptable(ctx context.Context, e impact.Effect) error
	// Backup keeps etcd as it is now.
	Backup(ctx context.Context) error
	// Kubernetes waits for a control plane that answers. The node itself is asked last.
	Kubernetes(ctx context.Context) (*kubeapi.Client, error)
	// WaitRejoined waits until the node does its work again, after all that was done to it.
	WaitRejoined(ctx context.Context) error
}

// System is what runs in the VMs of a cluster, Talos or K3s.
type System interface {
	// Restart is a node whose VM is to be restarted, as a rollout sees it.
	Restart(n plan.Node) Node
	// PreviewRestart warns of what would keep the node from being restarted as it is now, and says what is left of etcd
	// meanwhile.
	PreviewRestart(ctx context.Context, n plan.Node) (quorum string)
	// Kubernetes is that of whatever control plane answers.
	Kubernetes(ctx context.Context) (*kubeapi.Client, error)
	// EtcdMembers are the names of the nodes that etcd has members of. The members themselves are not asked.
	EtcdMembers(ctx context.Context, kube *kubeapi.Client) ([]string, error)
}

// Work is what is to be done to a node.
type Work struct {
	// Effect is that of the first step.
	Effect impact.Effect
	// NotInCluster says that no cluster depends on the node: it never joined, or it was already removed.
	NotInCluster bool
	// Unreachable says that the node cannot be drained, and is taken down as it is: the cluster does without it already,
	// as Kubernetes says of a worker.
	Unreachable bool
	// KeepPods says that pods stay on the node meanwhile: they outlive the work, or have no other place.
	KeepPods bool
	// Drain cordons and drains the node; nil: all pods leave, or nothing is done to it.
	Drain func(context.Context, Drain) error
	// DisruptiveSteps take the node down. A VM is restarted by the provider instead, between Prepare and Finish.
	DisruptiveSteps []DisruptiveStep
	// AfterUncordon is what is done at last, with pods on the node; nil: nothing.
	AfterUncordon func(context.Context) error
}

// DisruptiveStep takes a node down and waits until it is up again.
type DisruptiveStep struct {
	Effect impact.Effect
	// Needed says, for a step that follows another, whether there is anything left for it.
	Needed func(context.Context) (bool, error)
	Do     func(context.Context) error
}

// Program is the run of the Pulumi program that operations belong to.
type Program struct {
	// DryRun says that it is a preview.
	DryRun bool
	// Progress is shown while an operation runs, and does not stay in the log.
	Progress wait.Reporter
	// Warn shows what is no error. Where the program has ended already, nothing shows it.
	Warn func(message string)
	// Preview shows what a preview has found out about a node, to people and to 'ops impact'.
	Preview func(impact.NodeImpact) error
}

// Inventory is what Proxmox VE had when the run began; *preflight.Report implements it.
type Inventory interface {
	// Exists says that the VM of a node is known to exist.
	Exists(n plan.Node) bool
	// AbsentVMIDs are the VMIDs of nodes that had no VM; nil: Proxmox VE did not answer.
	AbsentVMIDs() map[int]bool
	// VM is the VM that has a VMID of the plan.
	VM(vmid int) (vmidentity.Found, bool)
}

// Scope is what all operations on the nodes of one cluster know.
type Scope struct {
	Program

	Plan *plan.Plan
	// Inventory is what Proxmox VE had when the run began.
	Inventory Inventory
	// Addresses of nodes, as they become known.
	Addresses *proxmoxvm.AddressBook
	// Identities tell the cluster's VMs from others.
	Identities *vmidentity.Identities
	// Limiter is shared by all that take a running node down.
	Limiter *Limiter
	// Destroying says that the run destroys the cluster.
	Destroying bool
}

// Drain cordons and drains a node before it is taken down, for whatever reason.
type Drain struct {
	Kube     *kubeapi.Client
	Node     string
	Timeout  time.Duration
	Progress wait.Reporter
}

// Run cordons the node and drains it. A node that its pods do not leave is uncordoned.
func (d Drain) Run(ctx context.Context) error {
	if err := d.Cordon(ctx); err != nil {
		return err
	}

	if err := d.Evict(ctx); err != nil {
		return errors.Join(err, d.undo(ctx))
	}

	return nil
}

// Evict takes the pods off the node.
func (d Drain) Evict(ctx context.Context) error {
	if err := d.Kube.Drain(ctx, d.Node, d.Timeout, d.Progress); err != nil {
		return spec.Blocked(
			err.Error(),
			"make room for its pods elsewhere, or raise lifecycle.drainTimeout; then run 'pulumi up' again",
		)
	}

	return nil
}

// Cordon keeps pods off the node.
func (d Drain) Cordon(ctx context.Context) error {
	if err := d.Kube.Cordon(ctx, d.Node); err != nil {
		return fmt.Errorf("could not cordon it: %w", err)
	}

	return nil
}

// undo uncordons the node, also in a run that is interrupted.
func (d Drain) undo(ctx context.Context) error {
	return d.Kube.Uncordon(context.WithoutCancel(ctx), d.Node)
}
