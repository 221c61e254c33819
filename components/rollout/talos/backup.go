package talos

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/talosapi"
)

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

// backupEtcd keeps etcd as the first of the control planes has it that answers, before something is done that may harm
// it.
func (c *Cluster) backupEtcd(
	ctx context.Context, controlPlanes []talosapi.Target, credentials talosapi.Credentials,
) error {
	if c.snapshots == nil {
		return nil
	}

	recipients, err := etcdbackup.Recipients(c.Plan.Backup.Recipients, c.BackupPassphrase)
	if err != nil {
		return fmt.Errorf("lifecycle.backup.recipients: %w", err)
	}

	store := *c.snapshots
	store.Recipients = recipients

	s, err := store.Take(time.Now(), func(w io.Writer) error {
		return talosapi.EtcdSnapshot(ctx, controlPlanes, credentials, c.Plan.TransferTimeout, w)
	})
	if err != nil {
		return fmt.Errorf("no snapshot of etcd could be kept in %s: %w; mend that, or set lifecycle.backup.enabled to false",
			c.snapshots.Dir, err)
	}

	note := ""
	if recipients == nil {
		note = "; it is not encrypted: state lifecycle.backup.recipients"
	}

	c.Progress(fmt.Sprintf("etcd is kept in %s, up to revision %d", s.Path, s.Revision) + note)

	return nil
}
