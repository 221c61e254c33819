package machineconfig

import (
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/cri"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/plan"
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

func (l RegistryLogin) tls() bool { return l.CA+l.Certificate != "" }

func (l RegistryLogin) auth() bool { return l.Username+l.Auth+l.IdentityToken != "" }

// ReadRegistryLogins reads logins by the host of their registry. Its errors quote nothing.
func ReadRegistryLogins(text string) (map[string]RegistryLogin, error) {
	var all map[string]RegistryLogin
	if yaml.UnmarshalStrict([]byte(text), &all) != nil || len(all) == 0 {
		return nil, fmt.Errorf("it is not logins by the host of their registry, such as registry.lan:5000, with username " +
			"and password, auth, identityToken, ca, certificate and key")
	}

	for _, host := range slices.Sorted(maps.Keys(all)) {
		switch l := all[host]; {
		case (l.Username == "") != (l.Password == ""):
			return nil, fmt.Errorf("%s needs username and password, or neither", host)
		case (l.Certificate == "") != (l.Key == ""):
			return nil, fmt.Errorf("%s needs certificate and key, or neither", host)
		case !l.auth() && !l.tls():
			return nil, fmt.Errorf("%s has no login", host)
		}
	}

	return all, nil
}

// RegistryLogins are the configuration patches with the logins of registries. They are as secret.
func RegistryLogins(p *plan.Plan, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}

	contract, err := talosconfig.ParseContractFromVersion(p.ContractVersion())
	if err != nil {
		return nil, err
	}

	all, err := ReadRegistryLogins(text)
	if err != nil {
		return nil, err
	}

	var docs []config.Document

	older := map[string]*v1alpha1.RegistryConfig{}

	for _, host := range slices.Sorted(maps.Keys(all)) {
		login := all[host]

		if !contract.MultidocNetworkConfigSupported() {
			older[host] = login.older()

			continue
		}

		if login.auth() {
			doc := cri.NewRegistryAuthConfigV1Alpha1(host)
			doc.RegistryUsername, doc.RegistryPassword = login.Username, login.Password
			doc.RegistryAuth, doc.RegistryIdentityToken = login.Auth, login.IdentityToken
			docs = append(docs, doc)
		}

		if login.tls() {
			doc := cri.NewRegistryTLSConfigV1Alpha1(host)
			doc.TLSCA = login.CA

			if login.Certificate != "" {
				doc.TLSClientIdentity = &meta.CertificateAndKey{Cert: login.Certificate, Key: login.Key}
			}

			docs = append(docs, doc)
		}
	}

	if len(older) > 0 {
		docs = append(docs, &v1alpha1.Config{ConfigVersion: "v1alpha1", MachineConfig: &v1alpha1.MachineConfig{
			MachineRegistries: v1alpha1.RegistriesConfig{RegistryConfig: older}, //nolint:staticcheck // what older versions know
		}})
	}

	var patches []string

	for _, doc := range docs {
		patch, err := render(doc)
		if err != nil {
			return nil, err
		}

		patches = append(patches, patch)
	}

	return patches, nil
}

// older is the login as Talos knows it before 1.12.
func (l RegistryLogin) older() *v1alpha1.RegistryConfig {
	c := &v1alpha1.RegistryConfig{}

	if l.auth() {
		c.RegistryAuth = &v1alpha1.RegistryAuthConfig{
			RegistryUsername: l.Username, RegistryPassword: l.Password, RegistryAuth: l.Auth,
			RegistryIdentityToken: l.IdentityToken,
		}
	}

	if l.tls() {
		c.RegistryTLS = &v1alpha1.RegistryTLSConfig{TLSCA: v1alpha1.Base64Bytes(l.CA)}

		if l.Certificate != "" {
			c.RegistryTLS.TLSClientIdentity = &x509.PEMEncodedCertificateAndKey{Crt: []byte(l.Certificate), Key: []byte(l.Key)}
		}
	}

	return c
}
