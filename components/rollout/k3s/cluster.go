// Package k3s is what is done to the nodes of a K3s cluster that run, or are about to: they are told their datastore,
// checked as they join, upgraded, restarted and removed.
package k3s

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

// Kubernetes is that of whatever server answers.
func (c *Cluster) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	if err := c.locate(ctx); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}

	return c.kubernetesAskingLast(ctx, "")
}

// EtcdMembers are the names of the nodes that K3s has noted a member of etcd of.
func (c *Cluster) EtcdMembers(ctx context.Context, kube *kubeapi.Client) ([]string, error) {
	servers, err := kube.Servers(ctx)
	maps.DeleteFunc(servers, func(_ string, s kubeapi.Server) bool { return s.Member == "" })

	return slices.Sorted(maps.Keys(servers)), err
}

// SetUpOn is the SMBIOS UUID of the machine that has joined as a node, as Kubernetes has it.
func (c *Cluster) SetUpOn(ctx context.Context, n plan.Node) (string, error) {
	if err := c.locate(ctx); err != nil {
		return "", err
	}

	kube, err := c.anyKubernetes(ctx)
	if err != nil {
		return "", err
	}

	node, _, err := kube.Node(ctx, n.Name)

	return node.Machine, err
}

// kubernetesAskingLast is Kubernetes by the first of the servers whose address is known and that answers. One of them
// is asked last: the one that something happens to.
func (c *Cluster) kubernetesAskingLast(ctx context.Context, last string) (*kubeapi.Client, error) {
	return c.kubernetesOfFirst(ctx, c.serversWithLast(last))
}

// serversWithLast are those of the plan, and one of them comes last.
func (c *Cluster) serversWithLast(last string) []plan.Node {
	servers := slices.Clone(c.Plan.ControlPlanes())
	slices.SortStableFunc(servers, func(a, b plan.Node) int { return sortKey(a.Name == last) - sortKey(b.Name == last) })

	return servers
}

// kubernetesOfFirst is Kubernetes by the first of some servers. Its error is what is waited for.
func (c *Cluster) kubernetesOfFirst(ctx context.Context, servers []plan.Node) (*kubeapi.Client, error) {
	kube, unreachable, err := c.firstAnswering(ctx, servers)
	if kube != nil || err != nil {
		return kube, err
	}

	if len(unreachable) == 0 {
		return nil, errors.New("the address of a server")
	}

	var missed []string
	for _, m := range unreachable {
		missed = append(missed, fmt.Sprintf("the Kubernetes API of %s (%v)", m.Name, m.Why))
	}

	return nil, errors.New(strings.Join(missed, "; "))
}

// anyKubernetes is Kubernetes by the first server that answers.
func (c *Cluster) anyKubernetes(ctx context.Context) (*kubeapi.Client, error) {
	kube, unreachable, err := c.firstAnswering(ctx, c.Plan.ControlPlanes())
	if kube != nil || err != nil {
		return kube, err
	}

	return nil, rollout.NoneReachable(unreachable)
}

// firstAnswering returns Kubernetes by the first of some servers that answers, and those that do not. One that takes a
// connection and says nothing leaves time for the others, and for what the caller asks next.
func (c *Cluster) firstAnswering(
	ctx context.Context, servers []plan.Node,
) (kube *kubeapi.Client, unreachable []rollout.Unreachable, err error) {
	for i, server := range servers {
		if c.Addresses.Get(server.Name) == "" {
			continue
		}

		if kube, err = c.kubernetesOf(ctx, server.Name); err != nil {
			return nil, nil, err
		}

		_, why := askWithinShare(ctx, len(servers)-i, kube.Nodes)
		if why == nil {
			return kube, nil, nil
		}

		unreachable = append(unreachable, rollout.Unreachable{Name: server.Name, Why: wait.Reason(why)})
	}

	return nil, unreachable, nil
}

// serverAddresses of the servers; empty where one is not known.
func (c *Cluster) serverAddresses() []string {
	var all []string
	for _, server := range c.Plan.ControlPlanes() {
		all = append(all, c.Addresses.Get(server.Name))
	}

	return all
}

// kubernetesOf is Kubernetes by one server.
func (c *Cluster) kubernetesOf(ctx context.Context, server string) (*kubeapi.Client, error) {
	kubeconfig, err := c.kubeconfig(ctx)
	if err != nil {
		return nil, err
	}

	return c.connect([]byte(kubeconfig), c.Addresses.Get(server))
}

func sortKey(later bool) int {
	if later {
		return 1
	}

	return 0
}

// kubeconfig waits for the credentials of the cluster.
func (c *Cluster) kubeconfig(ctx context.Context) (string, error) {
	kubeconfig, known := c.Kubeconfig.Get(ctx, c.Plan.NodeTimeout)
	if !known && errors.Is(ctx.Err(), context.Canceled) {
		return "", context.Cause(ctx)
	}

	if !known {
		return "", fmt.Errorf("the credentials of the cluster were not available within %s", c.Plan.NodeTimeout)
	}

	return kubeconfig, nil
}

// askWithinShare asks one of some questions, and leaves the others, and the caller, their part of the time that is
// left.
func askWithinShare[T any](ctx context.Context, questions int, ask func(context.Context) (T, error)) (T, error) {
	bound := wait.RequestTimeout
	if end, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(end)/time.Duration(questions+1))
	}

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	return ask(ctx)
}

// locate finds the addresses of the servers: a hook of a VM does not see them.
func (c *Cluster) locate(ctx context.Context) error {
	_, err := c.kubeconfig(ctx)
	if err == nil {
		c.discovery.Locate(ctx, c.Plan.ControlPlanes(), c.Addresses)
	}

	return err
}

// configurationOf is the configuration file of K3s on the machine of a node. It may hold a token.
func (c *Cluster) configurationOf(ctx context.Context, n plan.Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	machine, err := c.vmOf(ctx, n)
	if err != nil {
		return "", err
	}

	text, err := c.Proxmox.GuestFile(ctx, machine, k3sconfig.ConfigFile)
	if err != nil {
		return "", fmt.Errorf("%s could not be read through its guest agent: %w", k3sconfig.ConfigFile,
			c.explainRefusal(err, permissions.ReadGuestFiles))
	}

	return text, nil
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
