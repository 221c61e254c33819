package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spelling"
)

// k3sArgument is a long option with its value, or one that stands for yes.
var k3sArgument = regexp.MustCompile(`^--([a-z][a-z0-9-]*)(?:=(.*))?$`)

// The keys with arguments of K3s.
const (
	k3sServerArgs = "k3s.serverArgs"
	k3sAgentArgs  = "k3s.agentArgs"
)

// argumentName is an argument without its value, which may be a secret. What is no option may be the value of the one
// before.
func argumentName(arg string) string {
	if !strings.HasPrefix(arg, "-") {
		return ""
	}

	name, _, _ := strings.Cut(arg, "=")

	return strings.Fields(name)[0]
}

func (r *Resolver) checkK3sArgs(path string, args []string, version string) {
	for i, arg := range args {
		m := k3sArgument.FindStringSubmatch(arg)
		if m == nil {
			r.Problems.Add(checks.At(path, i), "must be a long option of k3s", argumentName(arg),
				"write it like --kube-apiserver-arg=audit-log-maxage=30")

			continue
		}

		if strings.HasPrefix(arg, "--kubelet-arg=hostname-override=") {
			r.Problems.Add(checks.At(path, i), "is set by the program itself", "--kubelet-arg=hostname-override",
				"leave it out, and use pools.<name>.names")
		} else if instead, own := k3sOwn[m[1]]; own {
			remedy := "leave it out"
			if instead != "" {
				remedy += ", and use " + instead
			}

			// Its value may be a token.
			r.Problems.Add(checks.At(path, i), "is set by the program itself", "--"+m[1], remedy)
		} else if path == k3sAgentArgs && slices.Contains(k3sServerOptions, m[1]) {
			r.Problems.Add(checks.At(path, i), "belongs in k3s.serverArgs: agents have no such option", "--"+m[1],
				"move it there")
		} else {
			r.checkK3sOption(path, i, m[1], version)
		}
	}
}

// checkK3sAPIServerArgs: what cluster.apiServer sets must not be set again.
func (r *Resolver) checkK3sAPIServerArgs(args []string) {
	a := r.Spec.Cluster.APIServer
	own := plan.APIServerArgs(a)

	for argument, set := range map[string]bool{
		"authentication-config": a.Authentication != nil, "audit-policy-file": a.Audit != nil,
		"admission-control-config-file": len(a.Admission) > 0,
	} {
		if set {
			own[argument] = ""
		}
	}

	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--kube-apiserver-arg="), "=")
		_, configured := own[name]
		given := "--kube-apiserver-arg=" + name

		switch {
		case configured:
			r.Problems.Add(checks.At(k3sServerArgs, i), "is already set by cluster.apiServer", given, "leave one "+
				"of the two out")
		case a.Authentication != nil && strings.HasPrefix(name, "oidc-"), a.OIDC != nil && name == "authentication-config":
			r.Problems.Add(checks.At(k3sServerArgs, i), "cannot be combined with cluster.apiServer: an API "+
				"server accepts only one of the two", given,
				"leave one of the two out")
		}
	}
}

// checkK3sOption checks that K3s has an option. Of one that it does not have, a server says so in its log and goes on
// without (K3s: pkg/configfilearg, stripInvalidFlags); an agent does not start.
func (r *Resolver) checkK3sOption(path string, i int, name, version string) {
	known, command := slices.Concat(k3sNodeOptions, k3sServerOptions), "k3s server"
	rule, effect := "is an option that 'k3s server' does not have", "servers would ignore it"

	if path == k3sAgentArgs {
		known, command = slices.Concat(k3sNodeOptions, k3sAgentOptions), "k3s agent"
		rule, effect = "is an option that 'k3s agent' does not have", "agents would not start with it"
	}

	if slices.Contains(known, name) {
		return
	}

	remedy := fmt.Sprintf("correct it: '%s --help' lists the options", command)
	near := spelling.Nearest(name, known, max(len(name)/3, 2)+1)
	instead, own := k3sOwn[near]

	switch {
	case slices.Contains(k3sAgentOptions, name):
		remedy = "move it to " + k3sAgentArgs
	case own && instead != "":
		remedy = fmt.Sprintf("did you mean --%s? Use %s instead", near, instead)
	case near != "" && !own:
		remedy = fmt.Sprintf("did you mean --%s?", near)
	}

	if maybeMoreOptions(version) {
		r.Warn(checks.At(path, i), fmt.Sprintf("%s in the releases up to v1.%d.%d+k3s1: if the release of "+
			"cluster.versions.k3s does not have it either, %s", rule, newestListed, k3sListed[newestListed], effect),
			"--"+name, remedy)

		return
	}

	r.Problems.Add(checks.At(path, i), rule+": "+effect, "--"+name, remedy)
}
