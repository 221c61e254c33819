package k3sconfig

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
	"talos-proxmox/tests/lab/cloudinit"
)

// identity has texts where keys are, so that the golden files are the same each time.
func identity() Identity {
	pair := func(name string) KeyPair {
		return KeyPair{Certificate: "<" + name + " certificate>\n", Key: "<" + name + " key>\n"}
	}

	return Identity{
		ServerCA: pair("server"), ClientCA: pair("client"), RequestHeaderCA: pair("request header"),
		EtcdServerCA: pair("etcd server"),
		EtcdPeerCA:   pair("etcd peer"), ServiceAccountKey: "<service account key>\n", Token: "server-password",
		AgentToken: "agent-password",
		SSH:        SSHKey{Public: "ssh-ed25519 AAAA admin@edge"},
	}
}

func planned(t *testing.T) *plan.Plan {
	t.Helper()

	p, err := planner.Plan(k3s())
	require.NoError(t, err)

	return p
}

func k3s() spec.Spec {
	return spec.Spec{
		Proxmox:  spec.Proxmox{Hosts: []spec.Host{{Name: "pve"}}, SSH: &spec.SSH{Username: "root"}},
		Provided: spec.SecretsProvided{SSHKey: true},
		Cluster: spec.Cluster{
			Name: "edge", Distribution: spec.DistributionK3s, Versions: spec.Versions{K3s: "1.34.2+k3s1"},
			Endpoint: spec.Endpoint{Mode: spec.EndpointDNS, Host: "api.example.com"},
		},
		K3s: &spec.K3s{
			Disable: []string{"traefik", "servicelb"},
			ServerArgs: []string{
				"--kube-apiserver-arg=audit-log-maxage=30", "--kube-apiserver-arg=v=2", "--secrets-encryption",
				"--tls-san=lb.example.com",
			},
			AgentArgs:      []string{"--kubelet-arg=max-pods=200"},
			Checksum:       "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			SSHKeys:        []string{" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtMwlzQ0KJyTzJuLKkSXWbQbKUeVeyXeRaNPcUkTpTu me\n"},
			GenerateSSHKey: true,
			Packages:       []string{"nfs-common"},
		},
		Image:   spec.Image{Template: spec.TemplateImage{Control: "ubuntu", Worker: "ubuntu"}},
		Network: spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
		Pools: map[string]spec.Pool{
			"server": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"},
			"agent": {Role: spec.RoleWorker, Count: new(1), Addresses: "10.0.0.21", VMSpec: spec.VMSpec{
				Labels: map[string]string{"tier": "db", "empty": "", "node-role.kubernetes.io/worker": ""},
				Taints: map[string]string{"dedicated": "db:NoSchedule", "spot": "PreferNoSchedule"},
			}},
		},
	}
}

// TestUserData holds the user data of each kind of node, as text against golden files, and as cloud-init reads it.
func TestUserData(t *testing.T) {
	t.Parallel()

	p := planned(t)
	nodes := p.Nodes()

	for name, n := range map[string]Node{
		"first-server": {Planned: nodes[0], First: true},
		"server":       {Planned: nodes[1], Server: "https://10.0.0.11:6443"},
		"agent":        {Planned: nodes[3], Server: "https://10.0.0.11:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := UserData(p, n, identity(), Secrets{})
			require.NoError(t, err)

			golden.Check(t, filepath.Join("testdata", name+".yaml"), text)

			read, err := cloudinit.Parse(text)
			require.NoError(t, err)
			require.Equal(t, n.Planned.Name, read.Hostname)

			_, has := read.File(tlsDir + "client-ca.key")
			require.Equal(t, n.First, has, "the keys of authorities are for the first server only")
		})
	}

	again, err := UserData(p, Node{Planned: nodes[0], First: true}, identity(), Secrets{})
	require.NoError(t, err)
	require.Contains(t, again, "ssh-ed25519 AAAAC3")
	require.Equal(t, " ssh-ed25519", p.K3s.SSHKeys[0][:12], "the plan is left as it was")
}

// TestRegistries: nodes ask mirrors of registries, and trust the operator's authorities before they fetch anything.
func TestRegistries(t *testing.T) {
	t.Parallel()

	p := planned(t)
	p.Mirrors = []plan.Mirror{
		{Registry: "*", Endpoints: []string{"https://registry.lan:5000"}},
		{Registry: "docker.io", Endpoints: []string{"https://hub.lan", "https://registry.lan:5000"}},
	}
	p.TrustedCAs = []spec.InlineOrFile{{Text: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\n"}}

	text, err := UserData(p, Node{Planned: p.Nodes()[3], Server: "https://10.0.0.11:6443"}, identity(), Secrets{})
	require.NoError(t, err)

	read, err := cloudinit.Parse(text)
	require.NoError(t, err)

	file, there := read.File("/etc/rancher/k3s/registries.yaml")
	require.True(t, there)
	require.Equal(t, "0600", file.Permissions)
	require.YAMLEq(t, "mirrors: {'*': {endpoint: ['https://registry.lan:5000']}, docker.io: {endpoint: ["+
		"'https://hub.lan', 'https://registry.lan:5000']}}", file.Content)
	require.Equal(t, []string{"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, read.CACerts.Trusted)
}

// TestRegistryLogins: what of a login is PEM is in files of its own.
func TestRegistryLogins(t *testing.T) {
	t.Parallel()

	p := planned(t)
	agent := Node{Planned: p.Nodes()[3], Server: "https://10.0.0.11:6443"}

	client, err := x509.NewSelfSignedCertificateAuthority()
	require.NoError(t, err)

	certificate, key := string(client.CrtPEM), string(client.KeyPEM)

	text, err := UserData(p, agent, identity(), Secrets{RegistryLogins: fmt.Sprintf("registry.lan:5000: {username: a, "+
		"password: b, ca: %[1]q, certificate: %[1]q, key: %[2]q}\nghcr.io: {identityToken: t}", certificate, key)})
	require.NoError(t, err)

	read, err := cloudinit.Parse(text)
	require.NoError(t, err)

	file, _ := read.File("/etc/rancher/k3s/registries.yaml")
	require.YAMLEq(t, `configs:
  ghcr.io: {auth: {identity_token: t}}
  registry.lan:5000:
    auth: {username: a, password: b}
    tls:
      ca_file: /etc/rancher/k3s/registries/registry.lan_5000.ca.crt
      cert_file: /etc/rancher/k3s/registries/registry.lan_5000.client.crt
      key_file: /etc/rancher/k3s/registries/registry.lan_5000.client.key`, file.Content)

	for name, want := range map[string]string{"ca.crt": certificate, "client.crt": certificate, "client.key": key} {
		file, there := read.File("/etc/rancher/k3s/registries/registry.lan_5000." + name)
		require.True(t, there, name)
		require.Equal(t, want, file.Content)
		require.Equal(t, "0600", file.Permissions)
	}

	_, err = UserData(p, agent, identity(), Secrets{RegistryLogins: "hunter2"})
	require.ErrorContains(t, err, "it must map the hosts of registries")
	require.NotContains(t, err.Error(), "hunter2")
}

// TestAPIServer: servers have the arguments and the files of their API servers, agents nothing. Of the audit log, what
// the operator states wins.
func TestAPIServer(t *testing.T) {
	t.Parallel()

	p := planned(t)
	p.K3s.ServerArgs = []string{"--kube-apiserver-arg=audit-log-maxage=7", "--kube-apiserver-arg=v=2"}
	p.APIServer = spec.APIServer{
		OIDC:  &spec.OIDC{Issuer: "https://a.lan", ClientID: "k", GroupsClaim: "groups"},
		Audit: &spec.InlineOrFile{Text: "kind: Policy\n"},
		Admission: map[string]map[string]any{
			"EventRateLimit": {"limits": []any{}},
			"PodSecurity":    {"defaults": map[string]any{"enforce": "baseline"}},
		},
	}

	server, agent := Node{Planned: p.Nodes()[0], First: true}, Node{Planned: p.Nodes()[3], Server: "https://10.0.0.11:6443"}

	text, err := UserData(p, server, identity(), Secrets{})
	require.NoError(t, err)

	read, err := cloudinit.Parse(text)
	require.NoError(t, err)

	var config struct {
		Args []string `yaml:"kube-apiserver-arg"`
	}

	file, _ := read.File("/etc/rancher/k3s/config.yaml")
	require.NoError(t, yaml.Unmarshal([]byte(file.Content), &config))
	require.Equal(t, []string{
		"admission-control-config-file=/etc/rancher/k3s/apiserver/admission.yaml",
		"audit-log-maxbackup=10", "audit-log-maxsize=100", "audit-log-path=/var/lib/rancher/k3s/server/logs/audit.log",
		"audit-policy-file=/etc/rancher/k3s/apiserver/audit.yaml", "enable-admission-plugins=NodeRestriction,EventRateLimit",
		"oidc-client-id=k", "oidc-groups-claim=groups", "oidc-issuer-url=https://a.lan",
		"audit-log-maxage=7", "v=2",
	}, config.Args)

	file, _ = read.File("/etc/rancher/k3s/apiserver/audit.yaml")
	require.Equal(t, "kind: Policy\n", file.Content)
	require.Equal(t, "0600", file.Permissions)

	file, _ = read.File("/etc/rancher/k3s/apiserver/admission.yaml")
	require.YAMLEq(t, `{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [
		{name: EventRateLimit, configuration: {limits: []}},
		{name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1,
			kind: PodSecurityConfiguration, defaults: {enforce: baseline}, exemptions: {namespaces: [kube-system]}}}]}`,
		file.Content)

	text, err = UserData(p, agent, identity(), Secrets{})
	require.NoError(t, err)
	require.NotContains(t, text, "apiserver")

	p.APIServer = spec.APIServer{Authentication: &spec.InlineOrFile{Text: "kind: AuthenticationConfiguration\n"}}
	other, err := UserData(p, server, identity(), Secrets{})
	require.NoError(t, err)
	require.Contains(t, other, "authentication-config=/etc/rancher/k3s/apiserver/authentication.yaml")
}

// TestProxy: the installation, and by it K3s, go through the proxy, and apt does. A change of it is a difference.
func TestProxy(t *testing.T) {
	t.Parallel()

	p := planned(t)
	agent := Node{Planned: p.Nodes()[3], Server: "https://10.0.0.11:6443"}

	without, err := UserData(p, agent, identity(), Secrets{})
	require.NoError(t, err)

	p.Proxy = &spec.Proxy{HTTP: "http://proxy.lan:3128", HTTPS: "http://proxy.lan:3129"}
	p.NoProxy = []string{"10.0.0.0/24", ".svc"}
	p.K3s.Mirror, p.K3s.AptMirror = "http://10.0.0.5/k3s", "http://mirror.example.com/ubuntu"

	with, err := UserData(p, agent, identity(), Secrets{})
	require.NoError(t, err)
	require.Equal(t, []string{"proxy"}, Differ(without, with))

	read, err := cloudinit.Parse(with)
	require.NoError(t, err)

	file, _ := read.File("/etc/default/k3s-install")
	require.Equal(t, "0600", file.Permissions)

	shell := exec.Command("sh", "-c", file.Content+"env")
	shell.Env = []string{"PATH=" + os.Getenv("PATH")}
	env, err := shell.Output()
	require.NoError(t, err)

	for _, want := range []string{
		"HTTP_PROXY=http://proxy.lan:3128", "http_proxy=http://proxy.lan:3128", "HTTPS_PROXY=http://proxy.lan:3129",
		"NO_PROXY=10.0.0.5,10.0.0.0/24,.svc", "no_proxy=10.0.0.5,10.0.0.0/24,.svc",
	} {
		require.Contains(t, strings.Split(string(env), "\n"), want)
	}

	require.Equal(t, "http://proxy.lan:3128", read.Apt.HTTPProxy)
	require.Equal(t, "http://proxy.lan:3129", read.Apt.HTTPSProxy)
	require.Equal(t, "Acquire::http::Proxy::10.0.0.5 \"DIRECT\";\nAcquire::https::Proxy::10.0.0.5 \"DIRECT\";\n", read.Apt.Conf)
}

// TestNoFallback: K3s asks either every registry itself, or none that has mirrors.
func TestNoFallback(t *testing.T) {
	t.Parallel()

	p := planned(t)
	p.Mirrors = []plan.Mirror{{
		Registry: "docker.io", Endpoints: []string{"https://a.lan/hub"}, Options: spec.RegistryOptions{SkipFallback: true},
	}}

	text, err := UserData(p, Node{Planned: p.Nodes()[3], Server: "https://10.0.0.11:6443"}, identity(), Secrets{})
	require.NoError(t, err)
	require.Contains(t, text, "disable-default-registry-endpoint: true\n")
}

// TestStartTimeout: both waits of the installation are bounded by the key, and its default leaves the text as it is.
func TestStartTimeout(t *testing.T) {
	t.Parallel()

	require.Equal(t, installer, installation(planned(t).K3s))

	text := installation(&plan.PlannedK3s{StartTimeout: 25 * time.Minute})
	require.Contains(t, text, "\ntimeout 1500 systemctl restart")
	require.Contains(t, text, `[ "$tries" -le 750 ] || exit 1`)
	require.NotContains(t, text, "600 ")
}

// TestAddressesThatAreNotKnown: a node whose address is not known finds it out itself.
func TestAddressesThatAreNotKnown(t *testing.T) {
	t.Parallel()

	p := planned(t)
	n := p.Nodes()[3]
	n.Address = netip.Addr{}

	text, err := UserData(p, Node{Planned: n, Server: "https://10.0.0.11:6443"}, identity(), Secrets{})
	require.NoError(t, err)
	require.NotContains(t, text, "node-ip")
}
