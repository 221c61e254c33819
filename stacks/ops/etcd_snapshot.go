package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/spf13/cobra"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/ops/state"
)

// snapshotCommand is what 'ops etcd snapshot' is told.
type snapshotCommand struct {
	*options

	dir             *string
	keep            int
	talosconfigFile string
	to              string
	keys            []string
	timeout         time.Duration
	warnings        io.Writer
}

func etcdSnapshot(o *options, dir *string) *cobra.Command {
	s := snapshotCommand{options: o, dir: dir}
	c := &cobra.Command{
		Use: "snapshot", Short: "Save a snapshot of etcd in a file", Args: cobra.NoArgs,
		Long: "Save a snapshot of etcd in a file, for its owner only: it holds the secrets of Kubernetes. It is " +
			"encrypted for lifecycle.backup.recipients of the stack, or with its backupPassphrase.\n\n" +
			"With --to, it is copied to a bucket of S3 too, encrypted only. The credentials are those of the AWS CLI: " +
			"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the role of the machine.\n\n" +
			"A control plane that answers is enough; etcd needs no quorum for it.",
		RunE: func(c *cobra.Command, _ []string) error {
			s.warnings = c.ErrOrStderr()

			return s.save(c.Context())
		},
	}
	c.Flags().Var((*keepCount)(&s.keep), "keep", "remove the oldest snapshots that this command has taken of the cluster "+
		"beyond this number; 0 removes none")
	c.Flags().DurationVar(&s.timeout, "timeout", 15*time.Minute, "how long it may take to be sent")
	c.Flags().StringVar(&s.talosconfigFile, "talosconfig", "",
		"an administrator's talosconfig; the stack's output when left out")
	c.Flags().StringVar(&s.to, "to", "", "a bucket that gets a copy, s3://bucket/prefix?region=eu-central-1")
	c.Flags().StringArrayVar(&s.keys, "recipient", nil,
		"a public key of age to encrypt for, instead of those of the stack")

	return c
}

// save takes a snapshot, and copies it where a bucket is named.
func (s snapshotCommand) save(ctx context.Context) error {
	var copies *bucket

	if s.to != "" {
		var err error
		if copies, err = parseBucket(s.to); err != nil {
			return err
		}
	}

	store, administrator, err := s.store(ctx)
	if err != nil {
		return err
	}

	taken, err := store.Save(time.Now(), func(w io.Writer) error { return fromAny(ctx, administrator, s.timeout, w) })
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(s.out, "snapshot %s: %s, revision %d, sha256 %s\n", taken.Path, size(taken.Size), taken.Revision,
		taken.SHA256)
	if err != nil || copies == nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()

	if err := copies.put(ctx, taken.Path, etcdbackup.NoteOf(taken.Path)); err != nil {
		return err
	}

	_, err = fmt.Fprintf(s.out, "copied to %s\n", copies)

	return err
}

// store is where the snapshot of a cluster is kept, and the administrator of the cluster.
func (s snapshotCommand) store(ctx context.Context) (etcdbackup.Store, *clientconfig.Context, error) {
	recipients, err := s.recipients(ctx)
	if err != nil {
		return etcdbackup.Store{}, nil, err
	}

	var protect []string
	if s.keep > 0 {
		if protect, err = s.recoverFrom(); err != nil {
			return etcdbackup.Store{}, nil, err
		}
	}

	talosconfig, err := s.talosconfig(ctx)
	if err != nil {
		return etcdbackup.Store{}, nil, err
	}

	administrator, there := talosconfig.Contexts[talosconfig.Context]
	if !there || len(administrator.Endpoints) == 0 {
		return etcdbackup.Store{}, nil, errors.New("the talosconfig has no context that is selected and names control " +
			"planes: choose one with 'talosctl config context'")
	}

	ca, err := credentialsOf(administrator).CAFingerprint()
	if err != nil {
		return etcdbackup.Store{}, nil, fmt.Errorf("the talosconfig: %w", err)
	}

	return etcdbackup.Store{
		Dir: s.inProject(*s.dir), Cluster: talosconfig.Context, ClusterCA: ca, Keep: s.keep, Protect: protect,
		Recipients: recipients, By: etcdbackup.ByHand,
		Warn: func(message string) { fmt.Fprintln(s.warnings, "warning:", message) },
	}, administrator, nil
}

// recipients are those of the stack, unless others are named. A talosconfig may be that of a cluster without a stack.
func (s snapshotCommand) recipients(ctx context.Context) ([]age.Recipient, error) {
	found, err := s.namedRecipients(ctx)

	switch {
	case err != nil || found != nil:
		return found, err
	case s.to != "":
		return nil, errors.New("--to: only an encrypted snapshot leaves this machine, for it holds every secret of " +
			"Kubernetes: name --recipient, or set lifecycle.backup.recipients and leave out --talosconfig")
	default:
		fmt.Fprintln(s.warnings, "warning: the snapshot is not encrypted: name --recipient, or set "+
			"lifecycle.backup.recipients and leave out --talosconfig")

		return nil, nil
	}
}

func (s snapshotCommand) namedRecipients(ctx context.Context) ([]age.Recipient, error) {
	if len(s.keys) > 0 || s.talosconfigFile != "" {
		return etcdbackup.Recipients(s.keys, "")
	}

	stack, err := state.Open(ctx, s.project, s.stack)
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
func (s snapshotCommand) talosconfig(ctx context.Context) (*clientconfig.Config, error) {
	if s.talosconfigFile != "" {
		// Talos' own Open creates a file that is not there.
		text, err := os.ReadFile(s.talosconfigFile)
		if err != nil {
			return nil, err
		}

		return clientconfig.FromBytes(text)
	}

	stack, err := state.Open(ctx, s.project, s.stack)
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

// size in the unit that people compare.
func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
