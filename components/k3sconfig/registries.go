package k3sconfig

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/cloudinit"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// registriesFile is what K3s reads mirrors of registries and their logins from when it starts (K3s: Private Registry
// Configuration); what of a login is PEM is in files of registriesDir.
const (
	registriesFile = "/etc/rancher/k3s/registries.yaml"
	registriesDir  = "/etc/rancher/k3s/registries/"
)

type registriesConfig struct {
	Mirrors map[string]registryMirror `yaml:"mirrors,omitempty"`
	Configs map[string]registryLogin  `yaml:"configs,omitempty"`
}

type registryMirror struct {
	Endpoint []string `yaml:"endpoint"`
}

type registryLogin struct {
	Auth *registryAuth `yaml:"auth,omitempty"`
	TLS  *registryTLS  `yaml:"tls,omitempty"`
}

type registryAuth struct {
	Username      string `yaml:"username,omitempty"`
	Password      string `yaml:"password,omitempty"`
	Auth          string `yaml:"auth,omitempty"`
	IdentityToken string `yaml:"identity_token,omitempty"`
}

type registryTLS struct {
	CA   string `yaml:"ca_file,omitempty"`
	Cert string `yaml:"cert_file,omitempty"`
	Key  string `yaml:"key_file,omitempty"`
}

// registries are the files that tell K3s where images come from; none without mirrors and logins.
func registries(mirrors []plan.Mirror, logins string) ([]cloudinit.File, error) {
	if len(mirrors) == 0 && logins == "" {
		return nil, nil
	}

	config := registriesConfig{Mirrors: map[string]registryMirror{}, Configs: map[string]registryLogin{}}

	for _, m := range mirrors {
		config.Mirrors[m.Registry] = registryMirror{m.Endpoints}
	}

	var (
		files []cloudinit.File
		known map[string]spec.RegistryLogin
		err   error
	)

	if logins != "" {
		if known, err = spec.ReadRegistryLogins(logins); err != nil {
			return nil, err
		}
	}

	for _, host := range slices.Sorted(maps.Keys(known)) {
		login := known[host]

		kept := func(name, pem string) string {
			if pem == "" {
				return ""
			}

			path := registriesDir + strings.ReplaceAll(host, ":", "_") + "." + name
			files = append(files, cloudinit.File{Path: path, Permissions: "0600", Content: pem})

			return path
		}

		var c registryLogin

		if auth := (registryAuth{login.Username, login.Password, login.Auth, login.IdentityToken}); auth != (registryAuth{}) {
			c.Auth = &auth
		}

		if tls := (registryTLS{
			kept("ca.crt", login.CA), kept("client.crt", login.Certificate), kept("client.key", login.Key),
		}); tls != (registryTLS{}) {
			c.TLS = &tls
		}

		config.Configs[host] = c
	}

	text, err := yaml.Marshal(config)

	return append([]cloudinit.File{{Path: registriesFile, Permissions: "0600", Content: string(text)}}, files...), err
}
