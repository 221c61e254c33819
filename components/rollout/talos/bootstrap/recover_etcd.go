package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// etcdLostError refuses to begin an empty etcd where there has been one.
func (b *Bootstrap) etcdLostError(c talosapi.Credentials) error {
	accept := "set lifecycle.acceptEmptyCluster to " + b.Plan.Cluster
	if b.Plan.AcceptEmpty {
		accept = "run 'pulumi state delete' with the URN of " + b.EmptyRecord +
			": lifecycle.acceptEmptyCluster was already applied once"
	}

	return spec.Blocked(
		"etcd is lost: no control plane holds its data, and "+b.Plan.Cluster+
			" would start as an empty cluster; "+b.newestSnapshot(c),
		"to start from a snapshot, set cluster.recoverFrom to it; to start with an empty cluster, "+accept+"; "+
			rollout.ToDestroy,
	)
}

// checkNoneLeaves refuses to call etcd lost while control planes that have left the plan are there: they may have it.
func (b *Bootstrap) checkNoneLeaves(ctx context.Context) error {
	leaving, err := b.Identities.LeavingControlPlanes(ctx)
	if err != nil {
		return fmt.Errorf("could not determine whether a control plane that has left the plan has the data of etcd: %w", err)
	}

	if len(leaving) == 0 {
		return nil
	}

	v := leaving[0]

	return spec.Blocked(
		"no control plane of the plan holds data of etcd, but one that has left the plan may: "+
			fmt.Sprintf("%s (VMID %d on host %s)", v.Label(), v.ID, v.Host),
		"put it back, run 'pulumi up', then remove it; or, if it is dead, name it in lifecycle.forceRemove",
	)
}

// newestSnapshot says which snapshot a lost etcd can start from.
func (b *Bootstrap) newestSnapshot(c talosapi.Credentials) string {
	if b.Snapshots == nil {
		return "no snapshot of it is known"
	}

	var (
		newest etcdbackup.Snapshot
		owned  bool
	)

	store, err := b.SnapshotsOf(c)
	if err == nil {
		newest, owned, err = store.Newest()
	}

	path := filepath.Join(b.Plan.Backup.Dir, filepath.Base(newest.Path))

	switch {
	case err != nil:
		return "its snapshots are unknown: " + err.Error()
	case newest.Path == "":
		return "no snapshot of it is in " + b.Plan.Backup.Dir
	case owned:
		return "its newest snapshot is " + path
	default:
		return "no snapshot is known to be of it; the newest that may be is " + path +
			", which does not say which cluster it is of"
	}
}

// CheckDataKept runs before the configuration of a control plane is forgotten whose machine is gone or new. The error
// is why it stays: with the last that may hold data of etcd, the state would no longer know that there has been a
// cluster.
func (b *Bootstrap) CheckDataKept(ctx context.Context, name string, role spec.Role, c talosapi.Credentials) error {
	if role != spec.RoleControlPlane || b.Inventory.AbsentVMIDs() == nil || b.Plan.RecoverFrom != "" ||
		b.Plan.AcceptEmpty {
		return nil
	}

	var others []talosapi.Target

	for _, n := range b.Plan.ControlPlanes() {
		if n.Name != name && b.Inventory.Exists(n) {
			others = append(others, talosapi.Target{Name: n.Name, Address: b.Addresses.Get(n.Name)})
		}
	}

	// One that does not answer may hold them.
	if !talosapi.AskEtcd(ctx, others, c).All(talosapi.EtcdEmpty, talosapi.EtcdUnconfigured) {
		return nil
	}

	return b.etcdLostError(c)
}

// checkBegin is why no etcd is begun where no control plane holds data of it: a newer snapshot is there than that to
// begin with, or the cluster has existed, for a snapshot of it is there.
func (b *Bootstrap) checkBegin(c talosapi.Credentials) error {
	switch {
	case b.Plan.RecoverFrom != "":
		return b.CheckNewest(c)
	case b.Plan.AcceptEmpty || b.Snapshots == nil:
		return nil
	}

	store, err := b.SnapshotsOf(c)
	if err == nil {
		var owned bool
		if _, owned, err = store.Newest(); err == nil && !owned {
			return nil
		}
	}

	if err != nil {
		return fmt.Errorf("could not determine whether the cluster has existed before: its snapshots are unknown: %w", err)
	}

	return b.etcdLostError(c)
}

// warnArmed warns, once in a run, of a snapshot to recover from that stays named while etcd has its data: with the next
// loss of the control planes, the cluster would begin with it without a question.
func (b *Bootstrap) warnArmed(report talosapi.EtcdReport) {
	if b.Plan.RecoverFrom == "" || !report.Any(talosapi.EtcdHeld) || b.warnedArmed.Swap(true) {
		return
	}

	b.Warn(fmt.Sprintf("cluster.recoverFrom is still %s, and etcd has its data: remove the key, or the next loss of all "+
		"control planes starts the cluster from that snapshot", b.Plan.RecoverFrom))
}

// previewArmed warns in a preview, as far as the control planes are known.
func (b *Bootstrap) previewArmed(ctx context.Context) {
	if b.Plan.RecoverFrom == "" {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	if c, known := b.Credentials.Get(ctx, wait.RequestTimeout); known {
		b.warnArmed(talosapi.AskEtcd(ctx, b.Peers(talosapi.Target{}, spec.RoleWorker), c))
	}
}

// readSnapshot is what a new etcd begins with; nil: it begins empty.
func (b *Bootstrap) readSnapshot(c talosapi.Credentials) (*talosapi.Recovery, error) {
	if b.Plan.RecoverFrom == "" {
		return nil, nil
	}

	if err := b.CheckRecovery(c); err != nil {
		return nil, err
	}

	open := func() (*os.File, error) { return os.OpenInRoot(cmp.Or(b.Dir, "."), b.Plan.RecoverFrom) }

	f, err := open()
	if err != nil {
		return nil, fmt.Errorf("cluster.recoverFrom: %w", err)
	}
	defer f.Close() // read only

	s, err := etcdbackup.Read(f)
	if err != nil {
		return nil, fmt.Errorf("cluster.recoverFrom: nothing can be recovered from %s: %w", b.Plan.RecoverFrom, err)
	}

	return &talosapi.Recovery{
		Open: func() (io.ReadCloser, error) { return open() }, Raw: s.Raw, Bound: b.Plan.TransferTimeout,
	}, nil
}
