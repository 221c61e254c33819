package plan

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/spec"
)

// checkGitOps: one tool follows the repository, and can read it.
func (r *resolver) checkGitOps(p *Plan) {
	const key = "cluster.gitOps"

	given, provided := r.spec.Cluster.GitOps, r.spec.Provided
	if given == nil {
		for _, secret := range []exclusiveKey{{"gitOpsKey", provided.GitOpsKey, ""}, {"ageKey", provided.AgeKey, ""}} {
			if secret.given {
				r.problems.Add(secret.path, "belongs to cluster.gitOps", "",
					"add cluster.gitOps, or run: pulumi config rm "+secret.path)
			}
		}

		return
	}

	g := &PlannedGitOps{GitOps: *given, Key: provided.GitOpsKey, Age: provided.AgeKey}
	g.Branch, g.Path = cmp.Or(g.Branch, "main"), path.Clean(strings.TrimPrefix(g.Path, "/"))
	p.GitOps = g

	switch flux, argo := slices.Contains(p.Addons, spec.AddonFlux), slices.Contains(p.Addons, spec.AddonArgoCD); {
	case flux == argo:
		r.problems.Add(key, "needs one of the addons flux and argo-cd", "", "name one of them in cluster.addons")
	case flux:
		g.Tool = spec.AddonFlux
	default:
		g.Tool = spec.AddonArgoCD
	}

	r.checkRepository(key, *g)

	if strings.ContainsAny(g.Branch, " \t\n~^:?*[\\") || strings.HasPrefix(g.Branch, "-") {
		r.problems.Add(key+".branch", "must be the name of a branch", g.Branch, "write it like main")
	}

	if g.Path == ".." || strings.HasPrefix(g.Path, "../") {
		r.problems.Add(key+".path", "must lie in the repository", given.Path, "write it like clusters/home")
	}

	if provided.AgeKey && g.Tool == spec.AddonArgoCD {
		r.problems.Add("ageKey", "belongs to the addon flux: Argo CD decrypts nothing by itself", "",
			"run: pulumi config rm ageKey")
	}
}

// checkRepository holds that a repository can be read, and that its server is known.
func (r *resolver) checkRepository(key string, g PlannedGitOps) {
	r.checkRepositoryURL(key+".repository", g.Repository)

	switch {
	case !g.SSH() && g.KnownHosts != nil:
		r.problems.Add(key+".knownHosts", "are for repositories that are reached over SSH", "", "leave them out")
	case g.SSH() && !r.spec.Provided.GitOpsKey:
		r.problems.Add("gitOpsKey", "is required with a repository that is reached over SSH", "",
			"run: pulumi config set --secret gitOpsKey < deploy-key")
	case g.SSH() && g.KnownHosts == nil && g.Tool == spec.AddonFlux:
		r.problems.Add(key+".knownHosts",
			"is required with ssh:// and flux, which trusts no server that it is not told of", "",
			"write what ssh-keyscan prints, after comparing it with what the server's operator publishes")
	}

	for i, line := range g.KnownHosts {
		if _, _, _, _, rest, err := ssh.ParseKnownHosts([]byte(line)); err != nil || len(rest) > 0 {
			r.problems.Add(at(key+".knownHosts", i), "must be one line of known_hosts", line,
				"write it like git.example.com ssh-ed25519 AAAA...")
		}
	}
}

// checkRepositoryURL is checkURL for a URL that may name the user of SSH.
func (r *resolver) checkRepositoryURL(at, text string) {
	const example = "ssh://git@git.example.com/platform.git"

	rest, overSSH := strings.CutPrefix(text, "ssh://")
	if user, host, named := strings.Cut(rest, "@"); overSSH && named && userName.MatchString(user) {
		text = "ssh://" + host
	}

	r.checkURL(at, text, example, "https", "ssh")
}
