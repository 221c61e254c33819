package components

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// backup keeps etcd as it was before something is done that may harm it.
type backup struct {
	store *etcdbackup.Store // nil: nothing is kept
	say   wait.Say
}

func newBackup(p *plan.Plan, directory string, say wait.Say) backup {
	if p.Backup == nil {
		return backup{}
	}

	return backup{&etcdbackup.Store{Dir: filepath.Join(directory, p.Backup.Dir), Cluster: p.Cluster, Keep: p.Backup.Keep}, say}
}

// take keeps what the first of the control planes that answers has.
func (b backup) take(ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials) error {
	if b.store == nil {
		return nil
	}

	s, err := b.store.Take(time.Now(), func(w io.Writer) error { return talosapi.EtcdSnapshot(ctx, controlPlanes, c, w) })
	if err != nil {
		return fmt.Errorf("no snapshot of etcd could be kept in %s: %w; mend that, or set lifecycle.backup.enabled to false", b.store.Dir, err)
	}

	b.say(fmt.Sprintf("etcd is kept in %s, up to revision %d", s.Path, s.Revision))

	return nil
}

// recovery is what a new etcd begins with; nil: it begins empty.
func recovery(p *plan.Plan, directory string) (*talosapi.Recovery, error) {
	if p.RecoverFrom == "" {
		return nil, nil
	}

	open := func() (*os.File, error) { return os.OpenInRoot(cmp.Or(directory, "."), p.RecoverFrom) }

	f, err := open()
	if err != nil {
		return nil, fmt.Errorf("cluster.recoverFrom: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only

	s, err := etcdbackup.Read(f)
	if err != nil {
		return nil, fmt.Errorf("cluster.recoverFrom: nothing can be recovered from %s: %w", p.RecoverFrom, err)
	}

	return &talosapi.Recovery{Open: func() (io.ReadCloser, error) { return open() }, Raw: s.Raw}, nil
}
