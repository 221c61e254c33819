package cluster

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"filippo.io/age"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// CheckBackup holds what is kept of etcd, and what it begins with.
func (r *Resolver) CheckBackup(p *plan.Plan) {
	b := r.Spec.Lifecycle.Backup

	if !filepath.IsLocal(b.Dir) {
		r.Problems.Add("lifecycle.backup.dir", "must be a directory inside the project", b.Dir,
			"write it like ./etcd-backups")
	}

	if b.Keep < 1 {
		r.Problems.Add("lifecycle.backup.keep", "must be 1 at least", strconv.Itoa(b.Keep),
			"set the number of snapshots to keep, or set lifecycle.backup.enabled to false")
	}

	for i, key := range b.Recipients {
		if found, err := age.ParseRecipients(strings.NewReader(key)); err != nil || len(found) != 1 {
			given := key
			if strings.Contains(strings.ToUpper(key), "SECRET-KEY") {
				given = "" // it is the other half
			}

			r.Problems.Add(checks.At("lifecycle.backup.recipients", i), "must be a public key of age", given,
				"copy what 'age-keygen -y <identity file>' prints, which begins with age1")
		}
	}

	if *b.Enabled && p.Bootstrap == spec.BootstrapPulumi {
		p.Backup = &b

		// Those of K3s stay on its servers.
		if r.Spec.Environment == spec.EnvironmentProduction && !r.IsK3s() && len(b.Recipients) == 0 &&
			!r.Spec.Provided.BackupPassphrase {
			r.Warn("lifecycle.backup.recipients",
				"is empty, so snapshots of etcd hold all Secrets of Kubernetes in plain text", "",
				"name public keys of age, or set the secret backupPassphrase")
		}
	}

	p.RecoverFrom = r.Spec.Cluster.RecoverFrom
}

// ResolveRemovals resolves and checks the lists in lifecycle of nodes to remove, and of nodes to recreate.
func (r *Resolver) ResolveRemovals(p *plan.Plan) {
	l := r.Spec.Lifecycle
	p.Replace, p.ForceRemove, p.Teardown = l.Replace, l.ForceRemove, l.Teardown

	if l.AcceptEmptyCluster != "" && l.AcceptEmptyCluster != p.Cluster {
		r.Problems.Add("lifecycle.acceptEmptyCluster", "must be the name of the cluster, "+p.Cluster, l.AcceptEmptyCluster,
			"set it to that name, or leave the key out")
	}

	if l.AcceptEmptyCluster != "" && r.Spec.Cluster.RecoverFrom != "" {
		r.Problems.Add("lifecycle.acceptEmptyCluster", "cannot be combined with cluster.recoverFrom: etcd starts "+
			"either from a snapshot or empty",
			l.AcceptEmptyCluster,
			"leave one of them out")
	}

	p.AcceptEmpty = l.AcceptEmptyCluster != ""

	if l.Teardown && len(l.Replace)+len(l.ForceRemove) > 0 {
		r.Problems.Add("lifecycle.teardown", "cannot be combined with replace and forceRemove: it removes every node",
			strings.Join(slices.Concat(l.Replace, l.ForceRemove), " "),
			"leave them out, or set teardown to false")
	}

	named := map[string]bool{}

	for _, n := range p.Nodes() {
		named[n.Name] = true

		if n.Protection && p.Replaces(n.Name) {
			r.Problems.Add("lifecycle.replace", "names a node whose VM is protected", n.Name,
				"set protection to false for its pool, and run 'pulumi up' before")
		}
	}

	for _, name := range l.Replace {
		if !named[name] {
			r.Problems.Add("lifecycle.replace", "names no node", name,
				"use the name that the plan gives the node, or remove it")
		}
	}

	for _, name := range l.ForceRemove {
		// One that is not named has left the configuration, which is what the key is for.
		if named[name] && !p.Replaces(name) {
			r.Warn("lifecycle.forceRemove", "has no effect on a node that stays", name,
				"take it out of its pool to remove it, or name it in lifecycle.replace to recreate it")
		}
	}
}
