// Package talos is what is done to the nodes of a Talos cluster that run, or are about to: they are configured,
// changed, upgraded, restarted and removed, and etcd is bootstrapped and kept.
package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// Options are what the operations need to know.
type Options struct {
	rollout.Scope

	Proxmox proxmoxvm.Proxmox
	// Credentials are known as soon as the identity of the cluster is; of an update that has renewed them, the new ones.
	Credentials *wait.Future[talosapi.Credentials]
	// UUIDs are the SMBIOS UUIDs of the VMs as the state has them, by the name of the node. One that the state does not
	// know is empty.
	UUIDs map[string]*wait.Future[string]
	// Versions of Kubernetes that control planes have been configured with.
	Versions rollout.ControlPlaneVersions
	// Nodes of the plan, by the name of their configuration.
	Nodes map[string]plan.Node
	// Dir is where the plan's paths begin, of snapshots of etcd.
	Dir string
	// BackupPassphrase encrypts snapshots of etcd that have no recipients; empty: they are not encrypted.
	BackupPassphrase string
	// EmptyRecord is the URN's name of the record that an empty cluster was accepted.
	EmptyRecord string
}

// Cluster is what the operations share.
type Cluster struct {
	Options

	// snapshots of etcd; nil: none are kept.
	snapshots *etcdbackup.Store
}

// node is the node whose configuration a hook runs for.
func (c *Cluster) node(args *pulumi.ResourceHookArgs) (plan.Node, error) {
	n, there := c.Nodes[args.Name]
	if !there {
		return n, fmt.Errorf("%s is the configuration of no node of the plan", args.Name)
	}

	return n, nil
}

// currentCredentials waits for the credentials of the cluster.
func (c *Cluster) currentCredentials(ctx context.Context) (talosapi.Credentials, error) {
	current, known := c.Credentials.Get(ctx, c.Plan.NodeTimeout)
	if !known && errors.Is(ctx.Err(), context.Canceled) {
		return current, context.Cause(ctx)
	}

	if !known {
		return current, fmt.Errorf("the credentials of the cluster are not known after %s", c.Plan.NodeTimeout)
	}

	return current, nil
}

// controlPlanes are addressed one by one, never through the cluster's endpoint.
func (c *Cluster) controlPlanes() []talosapi.Target {
	var targets []talosapi.Target
	for _, n := range c.Plan.ControlPlanes() {
		targets = append(targets, talosapi.Target{Name: n.Name, Address: c.Addresses.Get(n.Name)})
	}

	return targets
}

// peers are the control planes to ask when something happens to a node: those whose address is known, the node itself
// last where it is one.
func (c *Cluster) peers(t talosapi.Target, role spec.Role) []talosapi.Target {
	all := slices.DeleteFunc(c.controlPlanes(), func(p talosapi.Target) bool {
		return p.Address == "" || p.Name == t.Name
	})

	if role == spec.RoleControlPlane {
		all = append(all, t)
	}

	return all
}

// whyUnreachable is why a node does not answer, nil when it does: a reply may be lost.
func (c *Cluster) whyUnreachable(ctx context.Context, t talosapi.Target, credentials talosapi.Credentials) error {
	bound := min(c.Plan.SettleTimeout, c.Plan.NodeTimeout)

	return wait.Until(ctx, bound, c.Progress, func(ctx context.Context) error {
		if err := talosapi.Answers(ctx, t, credentials); err != nil {
			return wait.For("%s to answer (%v)", t.Name, err)
		}

		return nil
	})
}

// without leaves a node out.
func without(all []talosapi.Target, t talosapi.Target) []talosapi.Target {
	return slices.DeleteFunc(slices.Clone(all), func(c talosapi.Target) bool { return c.Address == t.Address })
}

// credentialsOf are those in the inputs of the resource that a hook runs for.
func credentialsOf(inputs resource.PropertyMap) talosapi.Credentials {
	client := hookutil.Unwrap(inputs["clientConfiguration"])
	if !client.IsObject() {
		return talosapi.Credentials{}
	}

	c := client.ObjectValue()

	return talosapi.Credentials{
		CA: hookutil.String(c, "caCertificate"), Certificate: hookutil.String(c, "clientCertificate"),
		Key: hookutil.String(c, "clientKey"),
	}
}
