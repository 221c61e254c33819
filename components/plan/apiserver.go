package plan

import (
	"maps"

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
