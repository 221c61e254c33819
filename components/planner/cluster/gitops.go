package cluster

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// checkGitOps: one tool follows the repository, and can read it.
func (r *Resolver) checkGitOps(p *plan.Plan) {
	const key = "cluster.gitOps"

	given, provided := r.Spec.Cluster.GitOps, r.Spec.Provided
	if given == nil {
		for _, secret := range []struct {
			path  string
			given bool
		}{{"gitOpsKey", provided.GitOpsKey}, {"ageKey", provided.AgeKey}} {
			if secret.given {
				r.Problems.Add(secret.path, "belongs to cluster.gitOps", "",
					"add cluster.gitOps, or run: pulumi config rm "+secret.path)
			}
		}

		return
	}

	g := &plan.PlannedGitOps{GitOps: *given, Key: provided.GitOpsKey, Age: provided.AgeKey}
	g.Branch, g.Path = cmp.Or(g.Branch, "main"), path.Clean(strings.TrimPrefix(g.Path, "/"))
	p.GitOps = g

	switch flux, argo := slices.Contains(p.Addons, spec.AddonFlux), slices.Contains(p.Addons, spec.AddonArgoCD); {
	case flux == argo:
		r.Problems.Add(key, "needs one of the addons flux and argo-cd", "", "name one of them in cluster.addons")
	case flux:
		g.Tool = spec.AddonFlux
	default:
		g.Tool = spec.AddonArgoCD
	}

	r.checkRepository(key, *g)

	if strings.ContainsAny(g.Branch, " \t\n~^:?*[\\") || strings.HasPrefix(g.Branch, "-") {
		r.Problems.Add(key+".branch", "must be the name of a branch", g.Branch, "write it like main")
	}

	if g.Path == ".." || strings.HasPrefix(g.Path, "../") {
		r.Problems.Add(key+".path", "must lie in the repository", given.Path, "write it like clusters/home")
	}

	if provided.AgeKey && g.Tool == spec.AddonArgoCD {
		r.Problems.Add("ageKey", "belongs to the addon flux: Argo CD decrypts nothing by itself", "",
			"run: pulumi config rm ageKey")
	}
}

// checkRepository checks that a repository can be read, and that its server is known.
func (r *Resolver) checkRepository(key string, g plan.PlannedGitOps) {
	r.checkRepositoryURL(key+".repository", g.Repository)

	switch {
	case !g.SSH() && g.KnownHosts != nil:
		r.Problems.Add(key+".knownHosts", "are for repositories that are reached over SSH", "", "leave them out")
	case g.SSH() && !r.Spec.Provided.GitOpsKey:
		r.Problems.Add("gitOpsKey", "is required with a repository that is reached over SSH", "",
			"run: pulumi config set --secret gitOpsKey < deploy-key")
	case g.SSH() && g.KnownHosts == nil && g.Tool == spec.AddonFlux:
		r.Problems.Add(key+".knownHosts",
			"is required with ssh:// and flux, which trusts only the servers in it", "",
			"write the output of ssh-keyscan, after comparing it with the keys that the server's operator publishes")
	}

	for i, line := range g.KnownHosts {
		if _, _, _, _, rest, err := ssh.ParseKnownHosts([]byte(line)); err != nil || len(rest) > 0 {
			r.Problems.Add(checks.At(key+".knownHosts", i), "must be one line of known_hosts", line,
				"write it like git.example.com ssh-ed25519 AAAA...")
		}
	}
}

// checkRepositoryURL is checkURL for a URL that may name the user of SSH.
func (r *Resolver) checkRepositoryURL(at, text string) {
	const example = "ssh://git@git.example.com/platform.git"

	rest, overSSH := strings.CutPrefix(text, "ssh://")
	if user, host, named := strings.Cut(rest, "@"); overSSH && named && userName.MatchString(user) {
		text = "ssh://" + host
	}

	r.CheckURL(at, text, example, "https", "ssh")
}
