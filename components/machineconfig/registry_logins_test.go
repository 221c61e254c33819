package machineconfig

import (
	"fmt"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestSecretManifests: they reach control planes, after the program's own.
func TestSecretManifests(t *testing.T) {
	p := plantest.New(t, plantest.Atlas(plantest.Talos112))

	const text = "apiVersion: v1\nkind: Secret\nmetadata: {name: deploy-key}\nstringData: {key: x}\n"

	patch, err := SecretManifests(p.Pools[0], text)
	require.NoError(t, err)

	patched, err := applyPatch(fullConfiguration(t, p, p.Pools[0].Nodes[0]), patch)
	require.NoError(t, err)

	all := patched.K8sInlineManifestConfigs()
	require.Equal(t, text, all[len(all)-1].Contents())
	require.Greater(t, len(all), 1)

	for name, empty := range map[string]func() (string, error){
		"a worker": func() (string, error) { return SecretManifests(p.Pools[1], text) },
		"none":     func() (string, error) { return SecretManifests(p.Pools[0], "") },
	} {
		patch, err := empty()
		require.NoError(t, err, name)
		require.Empty(t, patch, name)
	}
}

// TestSeveralLogins: the documents of Talos 1.12 take one login for a registry, containerd takes the first.
func TestSeveralLogins(t *testing.T) {
	const logins = "registry.lan: { auth: hunter2, identityToken: hunter2 }"

	_, err := RegistryLogins(plantest.New(t, plantest.Atlas(plantest.Talos111)), logins)
	require.NoError(t, err)

	_, err = RegistryLogins(plantest.New(t, plantest.Atlas(plantest.Talos112)), logins)
	require.EqualError(t, err, "registryLogins: registry.lan has several logins, of which Talos takes one: leave one of "+
		"username and password, auth and identityToken")
}

// TestRegistryLogins: each generation of Talos reads the logins of registries.
func TestRegistryLogins(t *testing.T) {
	authority, err := x509.NewSelfSignedCertificateAuthority()
	require.NoError(t, err)

	ca := string(authority.CrtPEM)
	logins := "registry.lan:5000: { username: robot, password: secret }\n" +
		fmt.Sprintf("mirror.lan: { identityToken: token, ca: %q }\n", ca)

	for name, versions := range map[string]spec.Versions{"1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, plantest.Atlas(versions))
			worker := fullConfiguration(t, p, p.Pools[1].Nodes[0])

			patches, err := RegistryLogins(p, logins)
			require.NoError(t, err)

			for _, patch := range patches {
				worker, err = applyPatch(worker, patch)
				require.NoError(t, err)
			}

			auths := worker.RegistryAuthConfigs()
			require.Equal(t, "robot", auths["registry.lan:5000"].Username())
			require.Equal(t, "secret", auths["registry.lan:5000"].Password())
			require.Equal(t, "token", auths["mirror.lan"].IdentityToken())
			require.Equal(t, ca, string(worker.RegistryTLSConfigs()["mirror.lan"].CA()))
		})
	}

	for text, want := range map[string]string{
		"a: { username: x }":             "a needs username and password, or neither",
		"a: { certificate: x, auth: y }": "a needs certificate and key, or neither",
		"a: {}":                          "a has no login",
		"a: { pasword: hunter2 }":        "it must map the hosts of registries",
		"hunter2":                        "it must map the hosts of registries",
	} {
		_, err := spec.ReadRegistryLogins(text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
