// Package k3s is what is done to the nodes of a K3s cluster that run, or are about to: they are told their datastore,
// checked as they join, upgraded, restarted and removed.
package k3s

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/wait"
)

// Options are what the operations need to know.
type Options struct {
	rollout.Scope

	Proxmox Proxmox
	// ProxmoxMajor is the first number of its version; 0: not known.
	ProxmoxMajor int
	// Kubeconfig is known as soon as the identity of the cluster is, whatever server it names.
	Kubeconfig *wait.Future[string]
	// Identity of the cluster. It is secret.
	Identity *wait.Future[k3sconfig.Identity]
	// Manifests are what the program applies to Kubernetes. They may hold secrets.
	Manifests *wait.Future[[]kubeapi.Manifest]
	// Versions of K3s that servers have.
	Versions rollout.ControlPlaneVersions
	// EmptyRecord is the name of the record that an empty cluster was accepted.
	EmptyRecord string
	// Nodes of the plan, by the name of their membership.
	Nodes map[string]plan.Node
}

// Proxmox is what is asked of Proxmox VE; *proxmoxapi.Client implements it.
type Proxmox interface {
	proxmoxvm.Proxmox

	Shutdown(ctx context.Context, vm proxmoxapi.VM) error
	GuestFile(ctx context.Context, vm proxmoxapi.VM, path string) (string, error)
	WriteGuestFile(ctx context.Context, vm proxmoxapi.VM, path, content string) error
}

// Cluster is what the operations share. It is the rollout.System of K3s. The machines themselves cannot be asked, so
// Kubernetes is.
type Cluster struct {
	Options

	// connect is kubeapi.New.
	connect func(kubeconfig []byte, address string) (*kubeapi.Client, error)
	// discovery finds the address of a node that is not known yet; nil: all are set.
	discovery *proxmoxvm.Discovery
	// clusterExisted is set when the state turns out to know the server of this run's first node.
	clusterExisted atomic.Bool
	// checkedObjects is done when objects of removed APIs were looked for.
	checkedObjects sync.Once
}

// node is the node whose membership a hook runs for.
func (c *Cluster) node(args *pulumi.ResourceHookArgs) (plan.Node, error) {
	n, there := c.Nodes[args.Name]
	if !there {
		return n, fmt.Errorf("%s belongs to no node of the plan", args.Name)
	}

	return n, nil
}

// explainRefusal names the privilege to grant, as this version of Proxmox VE calls it, where the credentials lack it.
func (c *Cluster) explainRefusal(err error, needed permissions.Privilege) error {
	if errors.Is(err, proxmoxapi.ErrRefused) {
		return fmt.Errorf("%w; grant %s", err, needed.On(c.ProxmoxMajor)[0])
	}

	return err
}

// vmOf is the VM of a node.
func (c *Cluster) vmOf(ctx context.Context, n plan.Node) (proxmoxapi.VM, error) {
	machine, there, err := c.Proxmox.Find(ctx, n.VMID)
	if err == nil && !there {
		err = fmt.Errorf("there is no VM with VMID %d", n.VMID)
	}

	return machine, err
}
