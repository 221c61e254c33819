package components

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// backup keeps etcd as it was before something is done that may harm it.
type backup struct {
	store *etcdbackup.Store // nil: nothing is kept
	bound time.Duration
	say   wait.Say
}

func newBackup(ctx *pulumi.Context, p *plan.Plan, directory string, say wait.Say) backup {
	if p.Backup == nil {
		return backup{}
	}

	var warned sync.Map

	warn := func(message string) {
		// One update takes many snapshots.
		if _, again := warned.LoadOrStore(message, true); !again {
			_ = ctx.Log.Warn("lifecycle.backup: "+message, nil) // a message that does not reach the screen is no reason to stop
		}
	}

	store := &etcdbackup.Store{Dir: filepath.Join(directory, p.Backup.Dir), Cluster: p.Cluster, Keep: p.Backup.Keep, Warn: warn}

	return backup{store, p.TransferTimeout, say}
}

// take keeps what the first of the control planes that answers has.
func (b backup) take(ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials) error {
	if b.store == nil {
		return nil
	}

	s, err := b.store.Take(time.Now(), func(w io.Writer) error { return talosapi.EtcdSnapshot(ctx, controlPlanes, c, b.bound, w) })
	if err != nil {
		return fmt.Errorf("no snapshot of etcd could be kept in %s: %w; mend that, or set lifecycle.backup.enabled to false", b.store.Dir, err)
	}

	b.say(fmt.Sprintf("etcd is kept in %s, up to revision %d", s.Path, s.Revision))

	return nil
}
