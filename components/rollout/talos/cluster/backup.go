package cluster

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// SnapshotsOf are the snapshots of the cluster that credentials are of.
func (c *Cluster) SnapshotsOf(credentials talosapi.Credentials) (etcdbackup.Store, error) {
	store := *c.Snapshots

	ca, err := credentials.CAFingerprint()
	store.ClusterCA = ca

	return store, err
}

// CheckRecovery refuses to begin with a snapshot of another cluster: with its Kubernetes come its volumes, its DNS
// records and all else that its controllers look after.
func (c *Cluster) CheckRecovery(credentials talosapi.Credentials) error {
	if c.Plan.RecoverFrom == "" {
		return nil
	}

	ca, err := credentials.CAFingerprint()
	if err == nil {
		err = etcdbackup.CheckCluster(filepath.Join(c.Dir, c.Plan.RecoverFrom), ca)
	}

	if err != nil {
		return fmt.Errorf("cluster.recoverFrom: nothing is recovered from %s: %w", c.Plan.RecoverFrom, err)
	}

	return nil
}

// CheckNewest refuses to begin with a snapshot where a newer one is known to be of the cluster: cluster.recoverFrom may
// be left of an earlier recovery. What has a name of its own is compared by its revision.
func (c *Cluster) CheckNewest(credentials talosapi.Credentials) error {
	if c.Plan.RecoverFrom == "" || c.Snapshots == nil {
		return nil
	}

	store, err := c.SnapshotsOf(credentials)
	if err != nil {
		return err
	}

	newest, owned, err := store.Newest()
	if err != nil {
		return fmt.Errorf("cluster.recoverFrom: could not determine whether %s is the newest snapshot: %w",
			c.Plan.RecoverFrom, err)
	}

	newer := owned

	if owned {
		if newer, err = newest.NewerThan(filepath.Join(c.Dir, c.Plan.RecoverFrom)); err != nil {
			return fmt.Errorf("cluster.recoverFrom: nothing can be recovered from %s: %w", c.Plan.RecoverFrom, err)
		}
	}

	if !newer {
		return nil
	}

	return spec.Blocked(
		fmt.Sprintf("cluster.recoverFrom: nothing is recovered from %s: %s is a newer snapshot of this cluster",
			c.Plan.RecoverFrom, filepath.Join(c.Plan.Backup.Dir, filepath.Base(newest.Path))),
		fmt.Sprintf("set cluster.recoverFrom to the newest one; or, to lose what has changed since the older one, move the "+
			"newer ones out of %s", c.Plan.Backup.Dir),
	)
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

	store, err := c.SnapshotsOf(credentials)
	if err != nil {
		return err
	}

	store.Recipients = recipients

	s, err := store.Save(time.Now(), func(w io.Writer) error {
		return talosapi.EtcdSnapshot(ctx, controlPlanes, credentials, c.Plan.TransferTimeout, w)
	})
	if err != nil {
		return fmt.Errorf("no snapshot of etcd could be kept in %s: %w; fix the cause, or set "+
			"lifecycle.backup.enabled to false",
			c.Snapshots.Dir, err)
	}

	note := ""
	if recipients == nil {
		note = "; it is not encrypted: set lifecycle.backup.recipients"
	}

	c.Progress(fmt.Sprintf("snapshot of etcd saved in %s, up to revision %d", s.Path, s.Revision) + note)

	return nil
}
