package k3s

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// sendDatastore tells a server that has none which etcd it is to have, and says what must be waited for before.
func (c *Cluster) sendDatastore(ctx context.Context, n plan.Node) error {
	// What runs has its etcd. Where the operator has restored it, the installation has yet to hear of it.
	if kube, _, err := c.firstAnswering(ctx, []plan.Node{n}); err == nil && kube != nil {
		if up, err := c.hasBeenUp(ctx, n); up || err != nil {
			return nil //nolint:nilerr // it runs
		}

		return c.writeDatastore(ctx, n, k3sconfig.Begin)
	}

	accepts, record, err := c.acceptsEmpty(ctx)
	if err != nil {
		return wait.For("the state (%v)", wait.Reason(err))
	}

	known := k3sconfig.Datastore{
		Cluster: c.Plan.Cluster, Server: n.Name, Existed: c.clusterExisted.Load(),
		AcceptEmpty: accepts, EmptyRecord: record,
	}

	for _, other := range c.Plan.Nodes() {
		if other.Name == n.Name {
			continue
		}

		if other.Role == spec.RoleControlPlane && known.Answering == "" {
			if kube, _, err := c.firstAnswering(ctx, []plan.Node{other}); err == nil && kube != nil {
				known.Answering = "https://" + net.JoinHostPort(c.Addresses.Get(other.Name), "6443")
			}
		}

		// One whose VM was not there when the run began has its whole life in this run.
		if !c.Inventory.Exists(other) {
			continue
		}

		switch up, err := c.hasBeenUp(ctx, other); {
		case err != nil && other.Role == spec.RoleControlPlane:
			known.Unknown = append(known.Unknown, fmt.Sprintf("%s (%v)", other.Name, wait.Reason(err)))
		case err != nil || !up:
			// An agent that nothing is known of says nothing against a new cluster: the state does.
		case other.Role == spec.RoleControlPlane:
			known.Servers = append(known.Servers, other.Name)
		default:
			known.Agents = append(known.Agents, other.Name)
		}
	}

	if err := c.addLeavingServers(ctx, &known); err != nil {
		return err
	}

	settings, waitingFor, err := known.Settings()
	if waitingFor != "" {
		return wait.For("%s", waitingFor)
	}

	if err != nil {
		return err
	}

	return c.writeDatastore(ctx, n, settings)
}

// addLeavingServers adds the servers that have left the plan: one of them may have the etcd of the cluster, unless the
// operator accepts an empty one.
func (c *Cluster) addLeavingServers(ctx context.Context, known *k3sconfig.Datastore) error {
	if known.AcceptEmpty {
		return nil
	}

	leaving, err := c.Identities.LeavingControlPlanes(ctx)
	if err != nil {
		return wait.For("the VMs of the cluster (%v)", wait.Reason(err))
	}

	for _, v := range leaving {
		name := v.Label() + " (it has left the configuration; if it is dead, name it in lifecycle.forceRemove)"

		switch up, err := c.hasBeenUp(ctx, plan.Node{VMID: v.ID}); {
		case err != nil:
			known.Unknown = append(known.Unknown, fmt.Sprintf("%s (%v)", name, wait.Reason(err)))
		case up:
			known.Servers = append(known.Servers, name)
		}
	}

	return nil
}

// acceptsEmpty says that an empty cluster may begin. lifecycle.acceptEmptyCluster counts once when it is set: record
// names the resource that says that it has had its effect.
func (c *Cluster) acceptsEmpty(ctx context.Context) (accepts bool, record string, err error) {
	if !c.Plan.AcceptEmpty {
		return false, "", nil
	}

	before, err := c.Identities.Recorded(ctx, c.EmptyRecord)
	if before {
		record = c.EmptyRecord
	}

	return err == nil && !before, record, err
}

// writeDatastore gives a server what its installation waits for.
func (c *Cluster) writeDatastore(ctx context.Context, n plan.Node, settings string) error {
	if err := c.Identities.CheckNow(ctx, n); err != nil {
		return wait.For("the VM of %s (%v)", n.Name, wait.Reason(err))
	}

	machine, err := c.vmOf(ctx, n)
	if err == nil {
		err = c.Proxmox.WriteGuestFile(ctx, machine, k3sconfig.DatastoreFile, settings)
	}

	switch {
	case errors.Is(err, proxmoxapi.ErrRefused):
		return fmt.Errorf("could not write its datastore settings: %w", c.explainRefusal(err, permissions.WriteGuestFiles))
	case err != nil:
		return wait.For("the guest agent of %s (%v)", n.Name, wait.Reason(err))
	default:
		return nil
	}
}

// hasBeenUp says whether K3s has been up on a node, by what is on its disk.
func (c *Cluster) hasBeenUp(ctx context.Context, n plan.Node) (bool, error) {
	machine, there, err := c.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return false, err
	}

	if _, err = c.Proxmox.GuestFile(ctx, machine, k3sconfig.DoneFile); err == nil {
		return true, nil
	}

	// A file that is not there is told from an agent that does not answer by one that always is.
	_, err = c.Proxmox.GuestFile(ctx, machine, "/etc/os-release")

	return false, err
}

// noServerLeft says that none of the plan's servers but one that was recreated has a VM, or is known to have had one.
func (c *Cluster) noServerLeft(name string) bool {
	return !slices.ContainsFunc(c.Plan.ControlPlanes(), func(n plan.Node) bool {
		return n.Name != name &&
			c.Inventory.Exists(n)
	})
}
