// Package cluster is what all operations on nodes ask of their Talos cluster: its credentials, its control planes,
// their Kubernetes, and snapshots and the quorum of etcd.
package cluster

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
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

	// Snapshots of etcd, without the CA of the cluster, which the credentials have (SnapshotsOf); nil: none are kept.
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

	store := &etcdbackup.Store{
		Dir: filepath.Join(o.Dir, o.Plan.Backup.Dir), Cluster: o.Plan.Cluster, Keep: o.Plan.Backup.Keep, Warn: warn,
	}
	if o.Plan.RecoverFrom != "" {
		store.Protect = []string{filepath.Join(o.Dir, o.Plan.RecoverFrom)}
	}

	return store
}
