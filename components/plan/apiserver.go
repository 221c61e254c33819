package plan

import (
	"maps"
	"strings"

	"sigs.k8s.io/yaml"

	"talos-proxmox/components/spec"
)

// APIServerArgs are the arguments of the API servers that need no file.
func APIServerArgs(a spec.APIServer) map[string]string {
	args := map[string]string{}

	if o := a.OIDC; o != nil {
		args = map[string]string{
			"oidc-issuer-url": o.Issuer, "oidc-client-id": o.ClientID, "oidc-username-claim": o.UsernameClaim,
			"oidc-username-prefix": o.UsernamePrefix, "oidc-groups-claim": o.GroupsClaim, "oidc-groups-prefix": o.GroupsPrefix,
		}
	}

	maps.DeleteFunc(args, func(_, value string) bool { return value == "" })

	return args
}

func (r *resolver) checkAPIServer(p *Plan) {
	const path = "cluster.apiServer"

	a := r.spec.Cluster.APIServer
	p.APIServer = a

	if o := a.OIDC; o != nil {
		r.checkURL(path+".oidc.issuer", o.Issuer, "https://login.example.com", "https")

		if o.ClientID == "" {
			r.problems.Add(path+".oidc.clientID", "is required", "", "state the client that tokens are issued for")
		}

		if a.Authentication != nil {
			r.problems.Add(path+".oidc", "excludes authentication: an API server takes one of the two", o.Issuer,
				"describe the provider there")
		}
	}

	r.checkObject(path+".audit", a.Audit, "audit.k8s.io/v1", "Policy")

	if !r.checkObject(path+".authentication", a.Authentication, "apiserver.config.k8s.io/v1",
		"AuthenticationConfiguration") {
		return
	}

	if p.Kubernetes != "" && minor(p.Kubernetes) < 30 {
		r.problems.Add(path+".authentication", "needs Kubernetes 1.30 or later", "", "raise "+r.versionKey())
	}

	var config struct{ Anonymous any }
	if err := yaml.Unmarshal([]byte(a.Authentication.Text), &config); err == nil && config.Anonymous != nil &&
		r.isK3s() && anonymousPatches.before(p.Kubernetes) {
		r.problems.Add(path+".authentication",
			"states anonymous, with which K3s before 1.31.9, 1.32.5 and 1.33.1 does not start", "", "raise "+r.versionKey())
	}
}

// checkObject holds that a text is one object of a kind, in a version of its group that begins as stated. What it says
// is not shown.
func (r *resolver) checkObject(path string, text *spec.InlineOrFile, version, kind string) bool {
	if text == nil {
		return false
	}

	var object struct{ APIVersion, Kind string }

	if yaml.Unmarshal([]byte(text.Text), &object) != nil || object.Kind != kind ||
		!strings.HasPrefix(object.APIVersion, version) {
		r.problems.Add(path, "must be one "+kind+" of "+version, text.Origin, "correct it")

		return false
	}

	return true
}
