package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"talos-proxmox/components/atomicfile"
	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/stacks/ops/state"
)

// etcd keeps snapshots of etcd, in addition to those that an update takes.
func etcd(o *options) *cobra.Command {
	c := group(&cobra.Command{Use: "etcd", Short: "Take and check snapshots of etcd"})

	dir := c.PersistentFlags().String("backups", "etcd-backups", "where snapshots of etcd are kept, seen from the project")

	c.AddCommand(etcdSnapshot(o, dir), etcdList(o, dir), etcdCheck(o), etcdDecrypt(o))

	return c
}

func etcdList(o *options, dir *string) *cobra.Command {
	var cluster string

	c := &cobra.Command{
		Use: "list", Short: "List the snapshots of etcd, newest first", Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			all, err := etcdbackup.Store{Dir: o.inProject(*dir), Cluster: cluster}.List()
			if err != nil {
				return err
			}

			w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SNAPSHOT\tTAKEN\tREVISION\tSIZE\tCLUSTER CA\tREMARK")

			for _, s := range all {
				remark := ""
				if err := etcdbackup.Verify(s); err != nil {
					remark = err.Error()
				} else if s.NoteErr != nil {
					remark = "complete, but its note cannot be read: " + s.NoteErr.Error()
				}

				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", filepath.Base(s.Path), s.Taken.Local().Format(time.DateTime),
					s.Revision, size(s.Size), cmp.Or(s.ClusterCA[:min(12, len(s.ClusterCA))], "unknown"), remark)
			}

			return w.Flush()
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "", "of this cluster only")

	return c
}

func etcdCheck(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "check <file>", Short: "Check whether a cluster can be recovered from a file", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close() // read only

			s, err := etcdbackup.Read(f)
			if err != nil {
				return fmt.Errorf("nothing can be recovered from %s: %w", args[0], err)
			}

			kind := "a snapshot, its hash is right"
			if s.Raw {
				kind = "a copy of a member's database: whether it is complete is unknown"
			}

			_, err = fmt.Fprintf(o.out, "%s: %s, revision %d, %d revisions of keys, sha256 %s; %s\n", args[0], size(s.Size),
				s.Revision, s.Keys, s.SHA256, kind)

			return err
		},
	}
}

// etcdDecrypt writes what an encrypted snapshot holds next to it.
func etcdDecrypt(o *options) *cobra.Command {
	var identity, out string

	c := &cobra.Command{
		Use: "decrypt <file>", Short: "Decrypt a snapshot of etcd, to recover a cluster from it", Args: cobra.ExactArgs(1),
		Long: "Decrypt a snapshot of etcd, with the identities of age in a file, or with the backupPassphrase of the " +
			"stack.\n\n" +
			"What it writes holds every secret of Kubernetes, in plain text: remove it after the recovery.",
		RunE: func(c *cobra.Command, args []string) error {
			identities, err := o.identities(c.Context(), identity)
			if err != nil {
				return err
			}

			if out == "" {
				out = strings.TrimSuffix(args[0], ".age")
			}

			in, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer in.Close() // read only

			var s etcdbackup.Snapshot

			err = atomicfile.Write(filepath.Dir(out), func(f *os.File) error {
				err := etcdbackup.Decrypt(in, f, identities...)
				if err == nil {
					s, err = etcdbackup.Read(f)
				}

				return err
			}, func(temporary string) error { return os.Link(temporary, out) })
			if err != nil {
				return fmt.Errorf("%s is not decrypted: %w", args[0], err)
			}

			_, err = fmt.Fprintf(o.out, "%s: in plain text, revision %d, sha256 %s. Remove it when it is no longer needed\n",
				out, s.Revision, s.SHA256)

			return err
		},
	}
	c.Flags().StringVarP(&identity, "identity", "i", "",
		"a file with identities of age; the stack's backupPassphrase when left out")
	c.Flags().StringVar(&out, "out", "", "the file to write; the name without .age when left out")

	return c
}

// identities are those of a file, or what the stack's passphrase makes.
func (o *options) identities(ctx context.Context, path string) ([]age.Identity, error) {
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close() // read only

		found, err := age.ParseIdentities(f)
		if err != nil { // it may quote the file
			return nil, fmt.Errorf("%s has no private keys of age, one a line (AGE-SECRET-KEY-1...)", path)
		}

		return found, nil
	}

	stack, err := state.Open(ctx, o.project, o.stack)
	if err != nil {
		return nil, err
	}

	config, err := stack.Config(ctx)
	if err != nil {
		return nil, err
	}

	if config.BackupPassphrase == "" {
		return nil, errors.New("the stack has no backupPassphrase: name the file of an identity with --identity")
	}

	found, err := age.NewScryptIdentity(config.BackupPassphrase)
	if err != nil {
		return nil, err
	}

	// A file must not keep the command busy for hours.
	found.SetMaxWorkFactor(20)

	return []age.Identity{found}, nil
}
