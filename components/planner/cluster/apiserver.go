package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"talos-proxmox/components/kubecomponents"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// authenticationGroup is the group of AuthenticationConfiguration.
const authenticationGroup = "apiserver.config.k8s.io/"

func (r *Resolver) checkAPIServer(p *plan.Plan) {
	const path = "cluster.apiServer"

	a := r.Spec.Cluster.APIServer
	p.APIServer = a

	if o := a.OIDC; o != nil {
		r.CheckURL(path+".oidc.issuer", o.Issuer, "https://login.example.com", "https")

		if o.ClientID == "" {
			r.Problems.Add(path+".oidc.clientID", "is required", "", "set the client that tokens are issued for")
		}

		if a.Authentication != nil {
			r.Problems.Add(path+".oidc", "cannot be combined with authentication: an API server accepts only one "+
				"of the two", o.Issuer,
				"describe the provider there")
		}
	}

	if r.checkObject(path+".audit", a.Audit, "audit.k8s.io/v1", "Policy") {
		var policy map[string]any

		if yaml.Unmarshal([]byte(a.Audit.Text), &policy) == nil {
			for _, fault := range kubecomponents.AuditFaults(policy) {
				r.Problems.Add(path+".audit", "must be a valid audit policy: "+fault, a.Audit.Origin, "correct it")
			}
		}
	}

	r.checkAdmission(path+".admission", a.Admission, p.Kubernetes)

	if !r.checkObject(path+".authentication", a.Authentication, authenticationGroup+"v1", "AuthenticationConfiguration") {
		return
	}

	var config struct {
		APIVersion string
		Anonymous  any
	}

	err := yaml.Unmarshal([]byte(a.Authentication.Text), &config)

	switch {
	case p.Kubernetes == "":
	case plan.Minor(p.Kubernetes) < 30:
		r.Problems.Add(path+".authentication", "needs Kubernetes 1.30 or later", "", "raise "+r.VersionKey())
	case config.APIVersion == authenticationGroup+"v1" && plan.Minor(p.Kubernetes) < 34:
		// An API server does not start with a version that it does not know (KEP-3331).
		r.Problems.Add(path+".authentication", "needs Kubernetes 1.34 or later: older API servers do not know its version",
			config.APIVersion,
			"write apiVersion: "+authenticationGroup+"v1beta1, or raise "+r.VersionKey())
	}

	switch {
	case err != nil || config.Anonymous == nil:
	case r.IsK3s() && anonymousPatches.before(p.Kubernetes):
		r.Problems.Add(path+".authentication",
			"sets anonymous, with which K3s before 1.31.9, 1.32.5 and 1.33.1 does not start", "", "raise "+r.VersionKey())
	case !r.IsK3s():
		// Kubernetes takes only one of the two (apiserver/pkg/server/options/authentication.go).
		r.Problems.Add(path+".authentication",
			"sets anonymous, with which the API server does not start: Talos sets --anonymous-auth=false", "",
			"leave anonymous out: anonymous requests are refused without it")
	}
}

// checkAdmission: an API server ignores the configuration of a plugin that it does not run.
func (r *Resolver) checkAdmission(path string, plugins map[string]map[string]any, kubernetes string) {
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		if kubecomponents.PluginKnown(name) {
			continue
		}

		const rule = "is not an admission plugin of Kubernetes"

		if plan.Minor(kubernetes) > kubecomponents.NewestAdmission {
			r.Warn(path+"."+name, rule+fmt.Sprintf(" up to 1.%d", kubecomponents.NewestAdmission), "", "check its name")

			continue
		}

		remedy := "leave it out"
		if near := kubecomponents.NearestPlugin(name); near != "" {
			remedy = fmt.Sprintf("did you mean %q?", near)
		}

		r.Problems.Add(path+"."+name, rule, "", remedy)
	}

	if !r.IsK3s() {
		return
	}

	// What the operator passes wins over what the program would enable.
	var (
		enabled []string
		passed  bool
	)

	for _, arg := range r.Spec.K3s.ServerArgs {
		if a := passedOn(arg); a.option == apiServerOption && a.name == kubecomponents.EnablePlugins {
			passed = true

			for name := range strings.SplitSeq(a.value, ",") {
				enabled = append(enabled, strings.TrimSpace(name))
			}
		}
	}

	for _, name := range kubecomponents.DisabledPlugins(maps.Keys(plugins)) {
		if passed && !slices.Contains(enabled, name) {
			r.Problems.Add(path+"."+name, "is not enabled: k3s.serverArgs sets "+kubecomponents.EnablePlugins+" without it", "",
				"add it there, or leave that argument out")
		}
	}
}

// checkObject checks that a text is one object of a kind, in a version of its group that begins as given. What it says
// is not shown.
func (r *Resolver) checkObject(path string, text *spec.InlineOrFile, version, kind string) bool {
	if text == nil {
		return false
	}

	var object struct{ APIVersion, Kind string }

	if yaml.Unmarshal([]byte(text.Text), &object) != nil || object.Kind != kind ||
		!strings.HasPrefix(object.APIVersion, version) {
		r.Problems.Add(path, "must be one "+kind+" of "+version, text.Origin, "correct it")

		return false
	}

	return true
}
