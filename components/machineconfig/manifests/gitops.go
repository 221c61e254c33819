package manifests

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// What Flux and Argo CD follow has the names that "flux bootstrap" gives, so that it can take over, and the cluster's.
const (
	fluxName      = "flux-system" // the namespace, too
	fluxAge       = "sops-age"
	argoNamespace = "argocd"
	argoName      = "cluster"
)

// withGitOps has the tool that an addon installs follow the repository.
func withGitOps(a addon, g *plan.PlannedGitOps) addon {
	if g.Tool == spec.AddonFlux {
		a.objects = fluxSync(g)

		return a
	}

	a.objects = append(a.objects[:len(a.objects):len(a.objects)], map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": argoName},
		"spec": map[string]any{
			"project": "default",
			"source":  map[string]any{"repoURL": g.Repository, "targetRevision": g.Branch, "path": g.Path},
			"destination": map[string]any{
				"server": "https://kubernetes.default.svc", "namespace": metav1.NamespaceDefault,
			},
			"syncPolicy": map[string]any{"automated": map[string]any{"prune": true, "selfHeal": true}},
		},
	})

	if g.KnownHosts != nil {
		a.patches = append(a.patches[:len(a.patches):len(a.patches)], addonPatch{
			"ConfigMap", "argocd-ssh-known-hosts-cm", map[string]any{"data": map[string]any{
				"ssh_known_hosts": lines(g.KnownHosts),
			}},
		})
	}

	return a
}

func fluxSync(g *plan.PlannedGitOps) []map[string]any {
	source := map[string]any{
		"interval": "1m0s", "url": g.Repository, "ref": map[string]any{"branch": g.Branch},
	}
	if g.Key {
		source["secretRef"] = map[string]any{"name": fluxName}
	}

	path := "./"
	if g.Path != "." {
		path += g.Path
	}

	sync := map[string]any{
		"interval": "10m0s", "path": path, "prune": true,
		"sourceRef": map[string]any{"kind": "GitRepository", "name": fluxName},
	}
	if g.Age {
		sync["decryption"] = map[string]any{"provider": "sops", "secretRef": map[string]any{"name": fluxAge}}
	}

	meta := map[string]any{"name": fluxName, "namespace": fluxName}

	return []map[string]any{
		{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": meta, "spec": source},
		{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": meta, "spec": sync},
	}
}

func lines(all []string) string {
	text := ""
	for _, line := range all {
		text += strings.TrimSpace(line) + "\n"
	}

	return text
}

// RepositoryKeys are the manifests with what Flux or Argo CD reads the repository with, and what Flux decrypts its
// content with; empty keys are left out. They are secret.
func RepositoryKeys(g *plan.PlannedGitOps, key, age string) (string, error) {
	namespace := argoNamespace
	if g.Tool == spec.AddonFlux {
		namespace = fluxName
	}

	objects := []runtime.Object{&corev1.Namespace{
		TypeMeta: typeOf("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}}
	add := func(name string, labels, data map[string]string) {
		objects = append(objects, &corev1.Secret{
			TypeMeta:   typeOf("v1", "Secret"),
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
			StringData: data,
		})
	}

	switch {
	case key == "":
	case g.Tool == spec.AddonFlux && g.SSH():
		add(fluxName, nil, map[string]string{"identity": key, "known_hosts": lines(g.KnownHosts)})
	case g.Tool == spec.AddonFlux:
		add(fluxName, nil, login(key))
	default:
		data := map[string]string{"sshPrivateKey": key}
		if !g.SSH() {
			data = login(key)
		}

		data["type"], data["url"] = "git", g.Repository
		add(argoName, map[string]string{"argocd.argoproj.io/secret-type": "repository"}, data)
	}

	if age != "" {
		add(fluxAge, nil, map[string]string{"age.agekey": age})
	}

	return encode(objects)
}

// login is a token with its user, or with one that services take with any token.
func login(key string) map[string]string {
	user, token, named := strings.Cut(strings.TrimSpace(key), ":")
	if !named {
		user, token = "git", user
	}

	return map[string]string{"username": user, "password": token}
}
