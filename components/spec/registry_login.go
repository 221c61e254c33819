package spec

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// RegistryLogin is how nodes log in to a registry.
type RegistryLogin struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	Auth          string `json:"auth,omitempty"`
	IdentityToken string `json:"identityToken,omitempty"`
	// CA is the authority of the registry, Certificate and Key are the client's, in PEM.
	CA          string `json:"ca,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
}

// HasTLS says that it has an authority or a certificate.
func (l RegistryLogin) HasTLS() bool { return l.CA+l.Certificate != "" }

// HasAuth says that it has a name or a token.
func (l RegistryLogin) HasAuth() bool { return l.Username+l.Auth+l.IdentityToken != "" }

// ReadRegistryLogins reads logins by the host of their registry. Its errors quote nothing.
func ReadRegistryLogins(text string) (map[string]RegistryLogin, error) {
	var all map[string]RegistryLogin
	if yaml.UnmarshalStrict([]byte(text), &all) != nil || len(all) == 0 {
		return nil, errors.New("it must map the hosts of registries, such as registry.lan:5000, to logins with " +
			"username and password, auth, identityToken, ca, certificate and key")
	}

	for _, host := range slices.Sorted(maps.Keys(all)) {
		switch l := all[host]; {
		case (l.Username == "") != (l.Password == ""):
			return nil, fmt.Errorf("%s needs username and password, or neither", host)
		case (l.Certificate == "") != (l.Key == ""):
			return nil, fmt.Errorf("%s needs certificate and key, or neither", host)
		case !l.HasAuth() && !l.HasTLS():
			return nil, fmt.Errorf("%s has no login", host)
		}
	}

	return all, nil
}
