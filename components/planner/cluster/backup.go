package cluster

import (
	"path/filepath"
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
