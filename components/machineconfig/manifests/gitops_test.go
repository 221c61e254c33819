package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

const hostKey = "git.lan ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKL6L0o1W6LpB6UwCenjfK3fesfmagi6B2MfVTBys/JM"

// TestGitOps: what Flux and Argo CD follow, and the keys that they are given for it.
func TestGitOps(t *testing.T) {
	overSSH := spec.GitOps{
		Repository: "ssh://git@git.lan/platform.git", Branch: "main", Path: ".clusters/home", KnownHosts: []string{hostKey},
	}
	overHTTPS := spec.GitOps{Repository: "https://git.lan/platform.git", Branch: "next", Path: "."}

	for name, c := range map[string]struct {
		is       plan.PlannedGitOps
		key, age string
		files    []string // texts in the files of the job
		secrets  map[string]map[string]string
	}{
		"Flux, with keys": {
			plan.PlannedGitOps{GitOps: overSSH, Tool: spec.AddonFlux, Key: true, Age: true},
			"a key", "AGE-SECRET-KEY-1",
			[]string{
				"kind: GitRepository", "url: ssh://git@git.lan/platform.git", "branch: main", "secretRef:\n    name: flux-system",
				"path: ./.clusters/home", "provider: sops\n    secretRef:\n      name: sops-age", "prune: true",
			},
			map[string]map[string]string{
				"flux-system/flux-system": {"identity": "a key", "known_hosts": hostKey + "\n"},
				"flux-system/sops-age":    {"age.agekey": "AGE-SECRET-KEY-1"},
			},
		},
		"Flux, with a token": {
			plan.PlannedGitOps{GitOps: overHTTPS, Tool: spec.AddonFlux, Key: true},
			"a-token\n", "",
			[]string{"url: https://git.lan/platform.git", "branch: next", "path: ./\n"},
			map[string]map[string]string{"flux-system/flux-system": {"username": "git", "password": "a-token"}},
		},
		"Argo CD, with a key": {
			plan.PlannedGitOps{GitOps: overSSH, Tool: spec.AddonArgoCD, Key: true},
			"a key", "",
			[]string{
				"kind: Application", "repoURL: ssh://git@git.lan/platform.git", "targetRevision: main", "path: .clusters/home",
				"name: argocd-ssh-known-hosts-cm", hostKey, "namespace: argocd",
			},
			map[string]map[string]string{"argocd/cluster": {
				"sshPrivateKey": "a key", "type": "git", "url": "ssh://git@git.lan/platform.git",
			}},
		},
		"Argo CD, with a token of a user": {
			plan.PlannedGitOps{GitOps: overHTTPS, Tool: spec.AddonArgoCD, Key: true},
			"robot:a-token", "",
			[]string{"path: .\n"},
			map[string]map[string]string{"argocd/cluster": {
				"username": "robot", "password": "a-token", "type": "git", "url": "https://git.lan/platform.git",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := planned(t, spec.CNI{}, spec.Endpoint{})
			p.Addons, p.GitOps = []spec.Addon{c.is.Tool}, &c.is

			all, err := Inline(p)
			if err != nil {
				t.Fatal(err)
			}

			job := objects(t, all[len(all)-1].Contents)[0].(*corev1.ConfigMap)
			files := strings.Join(slices.Collect(maps.Values(job.Data)), "\n")

			for _, want := range c.files {
				if !strings.Contains(files, want) {
					t.Errorf("there is no %q in\n%s", want, files)
				}
			}

			if strings.Contains(files, "a key") || strings.Contains(files, "a-token") || strings.Contains(files, "AGE-") {
				t.Error("a key is no part of the job:\n" + files)
			}

			text, err := RepositoryKeys(p.GitOps, c.key, c.age)
			if err != nil {
				t.Fatal(err)
			}

			got := map[string]map[string]string{}

			for _, object := range objects(t, text)[1:] {
				secret := object.(*corev1.Secret)
				got[secret.Namespace+"/"+secret.Name] = secret.StringData

				if c.is.Tool == spec.AddonArgoCD && secret.Labels["argocd.argoproj.io/secret-type"] != "repository" {
					t.Error("Argo CD does not find it:", secret.Labels)
				}
			}

			if diff := cmp.Diff(c.secrets, got); diff != "" {
				t.Error(diff)
			}
		})
	}

	if len(addonsOf[spec.AddonArgoCD].objects) != 1 || addonsOf[spec.AddonFlux].objects != nil {
		t.Error("the addons themselves changed")
	}
}
