// Package bootstrap begins etcd: once in the life of a cluster, and after that only from a snapshot, or where the
// operator accepts an empty cluster.
package bootstrap

import (
	"sync/atomic"

	"talos-proxmox/components/rollout/talos/cluster"
)

// Bootstrap ensures that a cluster has one etcd for the whole of its life. The kubeconfig in the state is the record
// that there has been one: it is created after the bootstrap and never replaced, so that only its creation starts a
// cluster. So is a snapshot that is known to be of the cluster: the kubeconfig may have been removed from the state.
// After that, an etcd is begun only from a snapshot, or empty where the operator says so.
type Bootstrap struct {
	*cluster.Cluster

	// membersExpected says that a control plane has got its first configuration in this run, and is not known to be up
	// yet.
	membersExpected atomic.Bool
	// acceptedEmpty says that the operator has accepted an empty cluster in this run.
	acceptedEmpty atomic.Bool
	// warnedArmed says that this run has warned of cluster.recoverFrom.
	warnedArmed atomic.Bool
}

// New returns the Bootstrap of a cluster.
func New(c *cluster.Cluster) *Bootstrap { return &Bootstrap{Cluster: c} }

// ExpectMember notes that a control plane gets its first configuration in this run: it is to join etcd.
func (b *Bootstrap) ExpectMember() { b.membersExpected.Store(true) }
