package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks/ops/backup"
	"talos-proxmox/stacks/ops/guard"
)

func etcd(o *options) *cobra.Command {
	c := &cobra.Command{Use: "etcd", Short: "What the cluster keeps"}
	c.AddCommand(etcdSnapshot(o))

	return c
}

func etcdSnapshot(o *options) *cobra.Command {
	var (
		dir     string
		timeout time.Duration
	)

	c := &cobra.Command{
		Use: "snapshot", Short: "Keep what etcd holds in a file, and verify it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := o.open(c.Context())
			if err != nil {
				return err
			}

			if !filepath.IsAbs(dir) {
				dir = filepath.Join(o.project, dir)
			}

			taken, err := backup.Take(c.Context(), s.Stack.(*guard.Pulumi).Stack, dir, timeout)
			if err != nil {
				return err
			}

			_, err = fmt.Fprintf(o.out, "%s  %d bytes  SHA-256 %s\n", taken.Path, taken.Bytes, taken.Hash)

			return err
		},
	}
	c.Flags().StringVar(&dir, "etcd-dir", "etcd-backups", "where snapshots of etcd are kept, seen from the project")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long a control plane may take")

	return c
}
