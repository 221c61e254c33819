package k3sconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
)

// TestSharedSettings: servers are compared as K3s compares them, with what it takes where nothing is stated.
func TestSharedSettings(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		args, disable []string
		file          string
		want          []string
	}{
		"nothing is stated": {},
		"what K3s takes anyway": {
			file: "cluster-cidr: 10.42.0.0/16\nservice-cidr: [10.43.0.0/16]\ncluster-dns: 10.43.0.10\n" +
				"cluster-domain: cluster.local\nflannel-backend: vxlan\negress-selector-mode: agent\n" +
				"secrets-encryption: false\nsecrets-encryption-provider: aescbc\n",
		},
		"what servers need not share": {
			args: []string{"--tls-san=a", "--kube-apiserver-arg=v=2"}, disable: []string{"traefik"},
			file: "disable: [coredns]\nnode-label: [a=b]\n",
		},
		"the same, written otherwise": {
			args:    []string{"--secrets-encryption", "--cluster-dns=10.43.0.11", "--cluster-domain=a", "--cluster-domain=b"},
			disable: []string{"traefik", "servicelb"},
			file:    "secrets-encryption: \"true\"\ncluster-dns: [10.43.0.11]\ncluster-domain: b\ndisable+: servicelb,traefik\n",
		},
		"a switch": {
			args: []string{"--disable-network-policy", "--embedded-registry=false"},
			file: "embedded-registry: true\n", want: []string{"disable-network-policy", "embedded-registry"},
		},
		"a component": {file: "disable: [servicelb]\n", want: []string{"disable=servicelb"}},
		"values": {
			args: []string{"--cluster-domain=a", "--cluster-dns=10.43.0.11,10.43.0.12"},
			file: "cluster-cidr: 10.44.0.0/16\nflannel-backend: none\n",
			want: []string{"cluster-cidr", "cluster-dns", "cluster-domain", "flannel-backend"},
		},
		"another network of services has another DNS": {
			file: "service-cidr: 10.45.0.0/16\n", want: []string{"cluster-dns", "service-cidr"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := planned(t)
			p.K3s.ServerArgs, p.K3s.Disable = c.args, c.disable

			read, err := ReadSharedSettings(c.file)
			require.NoError(t, err)
			assert.Equal(t, c.want, append([]string(nil), PlannedSharedSettings(p).Differing(read)...))
		})
	}

	_, err := ReadSharedSettings("token: hunter2\n\tx")
	require.EqualError(t, err, "/etc/rancher/k3s/config.yaml is not a YAML file of options")
}

// TestPlannedSharedSettings: what is compared is what the user data of a new server state.
func TestPlannedSharedSettings(t *testing.T) {
	t.Parallel()

	p := planned(t)
	text, err := UserData(p, Node{Planned: p.Nodes()[0], First: true}, identity(), Secrets{})
	require.NoError(t, err)

	p.K3s.ServerArgs = append(p.K3s.ServerArgs, "--disable-helm-controller")
	changed, err := UserData(p, Node{Planned: p.Nodes()[0], First: true}, identity(), Secrets{})
	require.NoError(t, err)

	assert.Empty(t, DifferShared(text, text))
	assert.Equal(t, []string{"disable-helm-controller"}, DifferShared(text, changed))

	p.K3s.Disable = []string{"servicelb"}
	assert.Equal(t, "k3s.disable", SharedSettingsKey(disableServiceLB))
	assert.Equal(t, "true", PlannedSharedSettings(p)[disableServiceLB])
	assert.Equal(t, plan.K3sPods.String(), PlannedSharedSettings(p)["cluster-cidr"])
}
