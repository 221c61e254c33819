package components

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"talos-proxmox/components/k3s"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// k3sDatastore tells the first server which etcd it has: a cluster begins once, and later it joins the others.
type k3sDatastore struct {
	k3sServers

	proxmox Proxmox
	report  *preflight.Report
	// identities tell a node's VM from another.
	identities *proxmoxvm.Identities
	// existed is set when the state turns out to know the server of this run's first node.
	existed atomic.Bool
}

// tell tells a server that has none which etcd it is to have, and says what must be waited for before.
func (d *k3sDatastore) tell(ctx context.Context, n plan.Node) (waitingFor string, err error) {
	// What runs has its etcd. Where somebody has restored it, the installation has yet to hear of it.
	if kube, _, err := d.ask(ctx, []plan.Node{n}); err == nil && kube != nil {
		if up, err := d.hasBeenUp(ctx, n); up || err != nil {
			return "", nil //nolint:nilerr // it runs
		}

		return d.write(ctx, n, k3s.Begin)
	}

	known := k3s.Datastore{Cluster: d.plan.Cluster, Server: n.Name, Existed: d.existed.Load(), AcceptEmpty: d.plan.AcceptEmpty}

	for _, other := range d.plan.Nodes() {
		if other.Name == n.Name {
			continue
		}

		if other.Role == spec.RoleControlPlane && known.Answering == "" {
			if kube, _, err := d.ask(ctx, []plan.Node{other}); err == nil && kube != nil {
				known.Answering = "https://" + net.JoinHostPort(d.known.Get(other.Name), "6443")
			}
		}

		// One whose VM was not there when the run began has its whole life in this run.
		if !d.report.Exists(other) {
			continue
		}

		switch up, err := d.hasBeenUp(ctx, other); {
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

	settings, waitingFor, err := known.Settings()
	if settings == "" || err != nil {
		return waitingFor, err
	}

	return d.write(ctx, n, settings)
}

// write gives a server what its installation waits for.
func (d *k3sDatastore) write(ctx context.Context, n plan.Node, settings string) (waitingFor string, err error) {
	if err = d.identities.CheckNow(ctx, n); err != nil {
		return fmt.Sprintf("the VM of %s (%v)", n.Name, wait.Reason(err)), nil
	}

	machine, there, err := d.proxmox.Find(ctx, n.VMID)
	if err == nil && !there {
		err = fmt.Errorf("there is no VM with VMID %d", n.VMID)
	}

	if err == nil {
		err = d.proxmox.WriteGuestFile(ctx, machine, k3s.DatastoreFile, settings)
	}

	switch {
	case errors.Is(err, proxmoxapi.ErrRefused):
		return "", fmt.Errorf("it cannot be told which etcd it has: %w; give its role VM.GuestAgent.FileWrite (before Proxmox VE 9: VM.Monitor)", err)
	case err != nil:
		return fmt.Sprintf("the guest agent of %s (%v)", n.Name, wait.Reason(err)), nil
	default:
		return "", nil
	}
}

// hasBeenUp says whether K3s has been up on a node, by what is on its disk.
func (d *k3sDatastore) hasBeenUp(ctx context.Context, n plan.Node) (bool, error) {
	machine, there, err := d.proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return false, err
	}

	if _, err = d.proxmox.GuestFile(ctx, machine, k3s.DoneFile); err == nil {
		return true, nil
	}

	// A file that is not there is told from an agent that does not answer by one that always is.
	_, err = d.proxmox.GuestFile(ctx, machine, "/etc/os-release")

	return false, err
}

// lost says that none of the plan's servers but one that was made anew has a VM, or is known to have had one.
func (d *k3sDatastore) lost(name string) bool {
	return !slices.ContainsFunc(d.plan.ControlPlanes(), func(n plan.Node) bool {
		return n.Name != name &&
			d.report.Exists(n)
	})
}
