package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/spf13/cobra"

	"talos-proxmox/components/atomicfile"
	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/ops/state"
)

// etcd keeps snapshots of etcd, in addition to those that an update takes.
func etcd(o *options) *cobra.Command {
	c := group(&cobra.Command{Use: "etcd", Short: "Take and check snapshots of etcd"})

	dir := c.PersistentFlags().String("backups", "etcd-backups", "where snapshots of etcd are kept, seen from the project")

	c.AddCommand(etcdSnapshot(o, dir), etcdList(o, dir), etcdCheck(o), etcdDecrypt(o))

	return c
}

func etcdSnapshot(o *options, dir *string) *cobra.Command {
	var (
		keep  int
		path  string
		to    string
		keys  []string
		bound time.Duration
	)

	c := &cobra.Command{
		Use: "snapshot", Short: "Save a snapshot of etcd in a file", Args: cobra.NoArgs,
		Long: "Save a snapshot of etcd in a file, for its owner only: it holds the secrets of Kubernetes. It is " +
			"encrypted for " +
			"lifecycle.backup.recipients of the stack, or with its backupPassphrase.\n\n" +
			"With --to, it is copied to a bucket of S3 too, encrypted only. The credentials are those of the AWS CLI: " +
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the machine.\n\n" +
			"A control plane that answers is enough; etcd needs no quorum for it.",
		RunE: func(c *cobra.Command, _ []string) error {
			var copies *bucket

			if to != "" {
				var err error
				if copies, err = parseBucket(to); err != nil {
					return err
				}
			}

			recipients, err := o.recipients(c.Context(), keys, path)
			if err != nil {
				return err
			}

			switch {
			case recipients == nil && copies != nil:
				return errors.New("--to: only an encrypted snapshot leaves this machine, for it holds every secret of " +
					"Kubernetes: name --recipient, or set lifecycle.backup.recipients and leave out --talosconfig")
			case recipients == nil:
				fmt.Fprintln(c.ErrOrStderr(), "warning: the snapshot is not encrypted: name --recipient, or set "+
					"lifecycle.backup.recipients and leave out --talosconfig")
			}

			var protect []string
			if keep > 0 {
				if protect, err = o.recoverFrom(); err != nil {
					return err
				}
			}

			talosconfig, err := o.talosconfig(c.Context(), path)
			if err != nil {
				return err
			}

			administrator, there := talosconfig.Contexts[talosconfig.Context]
			if !there || len(administrator.Endpoints) == 0 {
				return errors.New("the talosconfig has no context that is selected and names control planes: choose one with " +
					"'talosctl config context'")
			}

			ca, err := credentialsOf(administrator).CAFingerprint()
			if err != nil {
				return fmt.Errorf("the talosconfig: %w", err)
			}

			store := etcdbackup.Store{
				Dir: filepath.Join(o.project, *dir), Cluster: talosconfig.Context, ClusterCA: ca, Keep: keep, Protect: protect,
				Recipients: recipients, By: etcdbackup.ByHand,
				Warn: func(message string) { fmt.Fprintln(c.ErrOrStderr(), "warning:", message) },
			}

			s, err := store.Take(time.Now(), func(w io.Writer) error { return fromAny(c.Context(), administrator, bound, w) })
			if err != nil {
				return err
			}

			_, err = fmt.Fprintf(o.out, "snapshot %s: %s, revision %d, sha256 %s\n", s.Path, size(s.Size), s.Revision, s.SHA256)
			if err != nil || copies == nil {
				return err
			}

			ctx, cancel := context.WithTimeout(c.Context(), bound)
			defer cancel()

			if err := copies.put(ctx, s.Path, etcdbackup.NoteOf(s.Path)); err != nil {
				return err
			}

			_, err = fmt.Fprintf(o.out, "copied to %s\n", copies)

			return err
		},
	}
	c.Flags().IntVar(&keep, "keep", 0, "remove the oldest snapshots that this command has taken of the cluster beyond "+
		"this number; 0 removes none")
	c.Flags().DurationVar(&bound, "timeout", 15*time.Minute, "how long it may take to be sent")
	c.Flags().StringVar(&path, "talosconfig", "", "an administrator's talosconfig; the stack's output when left out")
	c.Flags().StringVar(&to, "to", "", "a bucket that gets a copy, s3://bucket/prefix?region=eu-central-1")
	c.Flags().StringArrayVar(&keys, "recipient", nil, "a public key of age to encrypt for, instead of those of the stack")

	return c
}

// recipients are those of the stack, unless others are named. A talosconfig may be that of a cluster without a stack.
func (o *options) recipients(ctx context.Context, keys []string, talosconfig string) ([]age.Recipient, error) {
	if len(keys) > 0 || talosconfig != "" {
		return etcdbackup.Recipients(keys, "")
	}

	stack, err := state.Open(ctx, o.project, o.stack)
	if err != nil {
		return nil, err
	}

	config, err := stack.Config(ctx)
	if err != nil {
		return nil, fmt.Errorf("could not determine the recipients of the encryption: %w\ncorrect it, or name "+
			"--recipient", err)
	}

	return etcdbackup.Recipients(config.Lifecycle.Backup.Recipients, config.BackupPassphrase)
}

// fromAny asks the control planes one after the other.
func fromAny(ctx context.Context, administrator *clientconfig.Context, bound time.Duration, w io.Writer) error {
	var targets []talosapi.Target
	for _, endpoint := range administrator.Endpoints {
		targets = append(targets, talosapi.Target{Name: endpoint, Address: endpoint})
	}

	return talosapi.EtcdSnapshot(ctx, targets, credentialsOf(administrator), bound, w)
}

func credentialsOf(administrator *clientconfig.Context) talosapi.Credentials {
	return talosapi.Credentials{CA: administrator.CA, Certificate: administrator.Crt, Key: administrator.Key}
}

// recoverFrom are the snapshots that stacks of the project recover from, which are never removed. A talosconfig does
// not say which stack its cluster has.
func (o *options) recoverFrom() ([]string, error) {
	stacks, err := filepath.Glob(filepath.Join(o.project, "Pulumi.*.yaml"))
	if err != nil {
		return nil, err
	}

	var found []string

	for _, stack := range stacks {
		values, err := config.ReadValues(stack)

		var cluster struct {
			RecoverFrom string `json:"recoverFrom"`
		}

		if text := values["cluster"]; err == nil && text != "" {
			err = json.Unmarshal([]byte(text), &cluster)
		}

		if err != nil {
			return nil, fmt.Errorf("--keep: the snapshot that cluster.recoverFrom names must stay, and that of %s is not "+
				"known: %w. Correct it, or leave out --keep", filepath.Base(stack), err)
		}

		if cluster.RecoverFrom != "" {
			found = append(found, filepath.Join(o.project, cluster.RecoverFrom))
		}
	}

	return found, nil
}

// talosconfig reads a file, or the stack's output.
func (o *options) talosconfig(ctx context.Context, path string) (*clientconfig.Config, error) {
	if path != "" {
		return clientconfig.Open(path)
	}

	stack, err := state.Open(ctx, o.project, o.stack)
	if err != nil {
		return nil, err
	}

	outputs, err := stack.Outputs(ctx)
	if err != nil {
		return nil, err
	}

	text, ok := outputs[contract.OutputTalosconfig].Value.(string)
	if !ok {
		return nil, errors.New("the stack has no output talosconfig: is it deployed, with cluster.bootstrap pulumi? Name a " +
			"file with --talosconfig")
	}

	return clientconfig.FromString(text)
}

func etcdList(o *options, dir *string) *cobra.Command {
	var cluster string

	c := &cobra.Command{
		Use: "list", Short: "List the snapshots of etcd, newest first", Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			all, err := etcdbackup.Store{Dir: filepath.Join(o.project, *dir), Cluster: cluster}.List()
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

// size in the unit that people compare.
func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
