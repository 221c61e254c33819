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

	"talos-proxmox/components/machineconfig/encode"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// RegistryLogins are the configuration patches with the logins of registries. They are as secret.
func RegistryLogins(p *plan.Plan, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}

	contract, err := talosconfig.ParseContractFromVersion(p.ContractVersion())
	if err != nil {
		return nil, err
	}

	all, err := spec.ReadRegistryLogins(text)
	if err != nil {
		return nil, err
	}

	var docs []config.Document

	older := map[string]*v1alpha1.RegistryConfig{}

	for _, host := range slices.Sorted(maps.Keys(all)) {
		login := all[host]

		if !contract.MultidocNetworkConfigSupported() {
			older[host] = olderLogin(login)

			continue
		}

		if login.Logins() > 1 {
			return nil, fmt.Errorf("registryLogins: %s has several logins, of which Talos takes one: leave one of username and "+
				"password, auth and identityToken", host)
		}

		if login.Logins() > 0 {
			doc := cri.NewRegistryAuthConfigV1Alpha1(host)
			doc.RegistryUsername, doc.RegistryPassword = login.Username, login.Password
			doc.RegistryAuth, doc.RegistryIdentityToken = login.Auth, login.IdentityToken
			docs = append(docs, doc)
		}

		if login.HasTLS() {
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
			MachineRegistries: v1alpha1.RegistriesConfig{RegistryConfig: older}, // what older versions know
		}})
	}

	var patches []string

	for _, doc := range docs {
		patch, err := encode.Document(doc)
		if err != nil {
			return nil, err
		}

		patches = append(patches, patch)
	}

	return patches, nil
}

// olderLogin is a login as Talos knows it before 1.12.
func olderLogin(l spec.RegistryLogin) *v1alpha1.RegistryConfig {
	c := &v1alpha1.RegistryConfig{}

	if l.Logins() > 0 {
		c.RegistryAuth = &v1alpha1.RegistryAuthConfig{
			RegistryUsername: l.Username, RegistryPassword: l.Password, RegistryAuth: l.Auth,
			RegistryIdentityToken: l.IdentityToken,
		}
	}

	if l.HasTLS() {
		c.RegistryTLS = &v1alpha1.RegistryTLSConfig{TLSCA: v1alpha1.Base64Bytes(l.CA)}

		if l.Certificate != "" {
			c.RegistryTLS.TLSClientIdentity = &x509.PEMEncodedCertificateAndKey{Crt: []byte(l.Certificate), Key: []byte(l.Key)}
		}
	}

	return c
}
