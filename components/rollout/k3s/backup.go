package k3s

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/wait"
)

// snapshotName begins the names of the snapshots, and of no others: K3s adds the node and the time, and on each server
// keeps lifecycle.backup.keep of those that begin so.
const snapshotName = "talos-proxmox-auto"

// backupEtcd has a server keep etcd on its disk before something happens to a node. Another one is asked first: what it
// keeps outlives the node.
func (c *Cluster) backupEtcd(ctx context.Context, node string) error {
	if c.Plan.Backup == nil {
		return nil
	}

	if err := c.locate(ctx); err != nil {
		return err
	}

	identity, known := c.Identity.Get(ctx, c.Plan.NodeTimeout)
	if !known {
		return fmt.Errorf("the identity of the cluster was not available within %s", c.Plan.NodeTimeout)
	}

	var failed []string

	for _, server := range c.serversEndingWith(node) {
		address := c.Addresses.Get(server.Name)
		if address == "" {
			continue
		}

		ask, cancel := context.WithTimeout(ctx, c.Plan.TransferTimeout)
		taken, err := kubeapi.SaveK3sSnapshot(ask, address,
			[]byte(identity.ServerCA.Certificate), identity.Token, snapshotName, c.Plan.Backup.Keep)

		cancel()

		switch {
		case errors.Is(err, kubeapi.ErrNoSnapshots):
			c.Warn("lifecycle.backup: " + server.Name + ": " + err.Error() + " (before April 2024); " +
				"only its last scheduled snapshot is available")

			return nil
		case err == nil:
			c.Progress(fmt.Sprintf("snapshot of etcd saved on %s as %s", server.Name, taken))

			return nil
		}

		failed = append(failed, fmt.Sprintf("%s: %v", server.Name, wait.Reason(err)))
	}

	return fmt.Errorf("no server has taken a snapshot of etcd (%s); fix the cause, or set lifecycle.backup.enabled "+
		"to false",
		strings.Join(failed, "; "))
}
