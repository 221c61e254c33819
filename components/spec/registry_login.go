package spec

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

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

// registryName is a host, with a port or not, or any registry.
var registryName = regexp.MustCompile(`^(\*|([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::(\d+))?)$`)

// IsRegistry says that a text is the name of a registry.
func IsRegistry(text string) bool {
	name := registryName.FindStringSubmatch(text)

	return name != nil && (name[4] == "" || IsPort(name[4]))
}

// ReadRegistryLogins reads logins by the host of their registry. Its errors quote nothing but the names of registries.
func ReadRegistryLogins(text string) (map[string]RegistryLogin, error) {
	var all map[string]RegistryLogin
	if yaml.UnmarshalStrict([]byte(text), &all) != nil || len(all) == 0 {
		return nil, errors.New("it must map the hosts of registries, such as registry.lan:5000, to logins with " +
			"username and password, auth, identityToken, ca, certificate and key")
	}

	for _, host := range slices.Sorted(maps.Keys(all)) {
		if err := checkRegistryName(host); err != nil {
			return nil, err
		}

		if rule := all[host].wrong(); rule != "" {
			return nil, fmt.Errorf("%s %s", host, rule)
		}
	}

	return all, nil
}

func checkRegistryName(name string) error {
	if IsRegistry(name) {
		return nil
	}

	remedy := "write it like registry.lan:5000 or *"
	if strings.Contains(name, "://") {
		remedy = "leave the scheme out, and " + remedy
	}

	// A URL may begin with credentials.
	return fmt.Errorf("%s must be the host of a registry: %s", name[strings.LastIndex(name, "@")+1:], remedy)
}

// Logins counts the ways to log in that it has: username and password, auth, and identityToken.
func (l RegistryLogin) Logins() int {
	count := 0

	for _, given := range []string{l.Username, l.Auth, l.IdentityToken} {
		if given != "" {
			count++
		}
	}

	return count
}

// wrong says why a login is none, and quotes nothing of it; empty where it is one.
func (l RegistryLogin) wrong() string {
	const inPEM = "give the content of the file, in PEM"

	switch {
	case (l.Username == "") != (l.Password == ""):
		return "needs username and password, or neither"
	case (l.Certificate == "") != (l.Key == ""):
		return "needs certificate and key, or neither"
	case l.Logins() == 0 && !l.HasTLS():
		return "has no login"
	case l.CA != "" && !holdsCertificate(l.CA):
		return "has a ca that is not a certificate: " + inPEM
	case l.Certificate != "" && !holdsCertificate(l.Certificate):
		return "has a certificate that is not one: " + inPEM
	}

	if l.Key != "" {
		if _, err := tls.X509KeyPair([]byte(l.Certificate), []byte(l.Key)); err != nil {
			return "has a key that is not the private key of its certificate: " + inPEM + " and without a passphrase"
		}
	}

	return ""
}

// holdsCertificate is as lenient as those who read it: other content is passed over.
func holdsCertificate(text string) bool { return x509.NewCertPool().AppendCertsFromPEM([]byte(text)) }
