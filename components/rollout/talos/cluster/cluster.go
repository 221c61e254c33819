// Package cluster is what all operations on nodes ask of their Talos cluster: its credentials, its control planes,
// their Kubernetes, and snapshots and the quorum of etcd.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/kubeapi"
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

	// Snapshots of etcd; nil: none are kept.
	Snapshots *etcdbackup.Store
}

// New returns the Cluster that operations share.
func New(o Options) *Cluster { return &Cluster{Options: o, Snapshots: snapshotsOf(o)} }

// Node is the node whose configuration a hook runs for.
func (c *Cluster) Node(args *pulumi.ResourceHookArgs) (plan.Node, error) {
	n, there := c.Nodes[args.Name]
	if !there {
		return n, fmt.Errorf("%s is the configuration of no node of the plan", args.Name)
	}

	return n, nil
}

// CurrentCredentials waits for the credentials of the cluster.
func (c *Cluster) CurrentCredentials(ctx context.Context) (talosapi.Credentials, error) {
	current, known := c.Credentials.Get(ctx, c.Plan.NodeTimeout)
	if !known && errors.Is(ctx.Err(), context.Canceled) {
		return current, context.Cause(ctx)
	}

	if !known {
		return current, fmt.Errorf("the credentials of the cluster were not available within %s", c.Plan.NodeTimeout)
	}

	return current, nil
}

// ControlPlanes are addressed one by one, never through the cluster's endpoint.
func (c *Cluster) ControlPlanes() []talosapi.Target {
	var targets []talosapi.Target
	for _, n := range c.Plan.ControlPlanes() {
		targets = append(targets, talosapi.Target{Name: n.Name, Address: c.Addresses.Get(n.Name)})
	}

	return targets
}

// Peers are the control planes to ask when something happens to a node: those whose address is known, the node itself
// last where it is one.
func (c *Cluster) Peers(t talosapi.Target, role spec.Role) []talosapi.Target {
	all := slices.DeleteFunc(c.ControlPlanes(), func(p talosapi.Target) bool {
		return p.Address == "" || p.Name == t.Name
	})

	if role == spec.RoleControlPlane {
		all = append(all, t)
	}

	return all
}

// WhyUnreachable is why a node does not answer, nil when it does: a reply may be lost.
func (c *Cluster) WhyUnreachable(ctx context.Context, t talosapi.Target, credentials talosapi.Credentials) error {
	bound := min(c.Plan.SettleTimeout, c.Plan.NodeTimeout)

	return wait.Until(ctx, bound, c.Progress, func(ctx context.Context) error {
		if err := talosapi.Answers(ctx, t, credentials); err != nil {
			return wait.For("%s to answer (%v)", t.Name, err)
		}

		return nil
	})
}

// Without leaves a node out.
func Without(all []talosapi.Target, t talosapi.Target) []talosapi.Target {
	return slices.DeleteFunc(slices.Clone(all), func(c talosapi.Target) bool { return c.Address == t.Address })
}

// CredentialsOf are those in the inputs of the resource that a hook runs for.
func CredentialsOf(inputs resource.PropertyMap) talosapi.Credentials {
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

// Kubernetes speaks with the first of the control planes whose API answers.
func Kubernetes(ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials) (*kubeapi.Client, error) {
	var all []rollout.Unreachable

	for _, t := range controlPlanes {
		kube, err := KubernetesOf(ctx, t, c)
		if err == nil {
			return kube, nil
		}

		all = append(all, rollout.Unreachable{Name: t.Name, Why: wait.Reason(err)})
	}

	return nil, rollout.NoneReachable(all)
}

// RetryingKubernetes is Kubernetes for work that takes time, in which other control planes may be changed.
func (c *Cluster) RetryingKubernetes(
	ctx context.Context, controlPlanes []talosapi.Target, credentials talosapi.Credentials,
) (*kubeapi.Client, error) {
	kube, err := Kubernetes(ctx, controlPlanes, credentials)
	if err != nil {
		return nil, err
	}

	var addresses []string
	for _, t := range controlPlanes {
		addresses = append(addresses, t.Address)
	}

	return kube.WithRetry(c.Plan.SettleTimeout, c.Progress, addresses...)
}

// KubernetesOf speaks with the API server of one control plane.
func KubernetesOf(ctx context.Context, t talosapi.Target, c talosapi.Credentials) (*kubeapi.Client, error) {
	raw, err := talosapi.Kubeconfig(ctx, t, c)
	if err != nil {
		return nil, err
	}

	kube, err := kubeapi.New(raw, t.Address)
	if err != nil {
		return nil, err
	}

	_, err = kube.Nodes(ctx)

	return kube, err
}

func snapshotsOf(o Options) *etcdbackup.Store {
	if o.Plan.Backup == nil {
		return nil
	}

	var warned sync.Map

	warn := func(message string) {
		// One update takes many snapshots.
		if _, again := warned.LoadOrStore(message, true); !again {
			o.Warn("lifecycle.backup: " + message)
		}
	}

	return &etcdbackup.Store{
		Dir: filepath.Join(o.Dir, o.Plan.Backup.Dir), Cluster: o.Plan.Cluster, Keep: o.Plan.Backup.Keep, Warn: warn,
	}
}

// BackupEtcd keeps etcd as the first of the control planes has it that answers, before something is done that may harm
// it.
func (c *Cluster) BackupEtcd(
	ctx context.Context, controlPlanes []talosapi.Target, credentials talosapi.Credentials,
) error {
	if c.Snapshots == nil {
		return nil
	}

	recipients, err := etcdbackup.Recipients(c.Plan.Backup.Recipients, c.BackupPassphrase)
	if err != nil {
		return fmt.Errorf("lifecycle.backup.recipients: %w", err)
	}

	store := *c.Snapshots
	store.Recipients = recipients

	s, err := store.Take(time.Now(), func(w io.Writer) error {
		return talosapi.EtcdSnapshot(ctx, controlPlanes, credentials, c.Plan.TransferTimeout, w)
	})
	if err != nil {
		return fmt.Errorf("no snapshot of etcd could be kept in %s: %w; fix the cause, or set "+
			"lifecycle.backup.enabled to false",
			c.Snapshots.Dir, err)
	}

	note := ""
	if recipients == nil {
		note = "; it is not encrypted: state lifecycle.backup.recipients"
	}

	c.Progress(fmt.Sprintf("snapshot of etcd saved in %s, up to revision %d", s.Path, s.Revision) + note)

	return nil
}
