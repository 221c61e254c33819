package planner

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// TestK3sArguments: problems name options, and no values, which may be secrets; agents are given none of servers.
func TestK3sArguments(t *testing.T) {
	t.Parallel()

	const (
		long     = ": must be a long option of k3s"
		example  = "; write it like --kube-apiserver-arg=audit-log-maxage=30"
		moved    = "); move it there"
		networks = ", by which the firewalls and the checks go "
		servers  = ": belongs in k3s.serverArgs: agents have no such option (given: "
		ignored  = ": is an option that 'k3s server' does not have: servers would ignore it (given: "
		fatal    = ": is an option that 'k3s agent' does not have: agents would not start with it (given: "
	)

	for name, test := range map[string]struct {
		servers, agents, want []string
	}{
		"options": {
			servers: []string{"--etcd-s3-secret-key=hunter2", "--tls-san=api.lan"},
			agents:  []string{"--kubelet-arg=max-pods=200", "--disable-apiserver-lb", "--snapshotter=zfs"},
		},
		"a value of its own": {
			servers: []string{"--etcd-s3-secret-key", "hunter2"},
			want:    []string{"k3s.serverArgs[1]" + long + example},
		},
		"a space": {
			servers: []string{"--etcd-s3-secret-key hunter2"},
			want:    []string{"k3s.serverArgs[0]" + long + " (given: --etcd-s3-secret-key)" + example},
		},
		"capitals": {
			servers: []string{"--Secret=hunter2"},
			want:    []string{"k3s.serverArgs[0]" + long + " (given: --Secret)" + example},
		},
		"options of servers": {
			agents: []string{
				"--tls-san=api.lan", "--etcd-s3-secret-key=hunter2", "--kube-apiserver-arg=v=2", "--secrets-encryption",
			},
			want: []string{
				"k3s.agentArgs[0]" + servers + "--tls-san" + moved,
				"k3s.agentArgs[1]" + servers + "--etcd-s3-secret-key" + moved,
				"k3s.agentArgs[2]" + servers + "--kube-apiserver-arg" + moved,
				"k3s.agentArgs[3]" + servers + "--secrets-encryption" + moved,
			},
		},
		"networks of others": {
			servers: []string{
				"--kube-controller-manager-arg=cluster-cidr=10.52.0.0/16", "--kube-controller-arg=--cluster-cidr+=10.52.0.0/16",
				"--kube-apiserver-arg=service-cluster-ip-range=10.53.0.0/16,fd00::/112",
				"--kube-proxy-arg=cluster-cidr=10.52.0.0/16", "--kube-apiserver-arg=secure-port=7443",
			},
			agents: []string{"--kube-proxy-arg=cluster-cidr=10.42.0.0/24"},
			want: []string{
				"k3s.serverArgs[4]: is set by K3s itself (given: --kube-apiserver-arg=secure-port); leave it out",
				"k3s.serverArgs[0]: must be k3s.clusterCIDR, 10.42.0.0/16" + networks + "(given: " +
					"--kube-controller-manager-arg=cluster-cidr); leave it out, and use k3s.clusterCIDR",
				"k3s.serverArgs[1]: must be k3s.clusterCIDR, 10.42.0.0/16" + networks + "(given: " +
					"--kube-controller-arg=cluster-cidr); leave it out, and use k3s.clusterCIDR",
				"k3s.serverArgs[2]: must be k3s.serviceCIDR, 10.43.0.0/16" + networks + "(given: " +
					"--kube-apiserver-arg=service-cluster-ip-range); leave it out, and use k3s.serviceCIDR",
				"k3s.serverArgs[3]: must hold k3s.clusterCIDR, 10.42.0.0/16, the network of pods (given: " +
					"--kube-proxy-arg=cluster-cidr); leave it out: K3s sets it",
				"k3s.agentArgs[0]: must hold k3s.clusterCIDR, 10.42.0.0/16, the network of pods (given: " +
					"--kube-proxy-arg=cluster-cidr); leave it out: K3s sets it",
			},
		},
		"networks that hold anyway": {
			servers: []string{
				"--kube-controller-manager-arg=cluster-cidr=10.42.0.0/16", "--kube-proxy-arg=cluster-cidr=10.0.0.0/8",
				"--kube-apiserver-arg=service-cluster-ip-range=10.43.0.0/16",
			},
		},
		"options that K3s does not have": {
			servers: []string{
				"--disables=traefik", "--disable-networkpolicy", "--audit=hunter2", "--disable-apiserver-lb", "--tls-sans=a",
				"--tokens=hunter2",
			},
			agents: []string{"--kubelet-args=max-pods=200", "--tls-sans=a"},
			want: []string{
				"k3s.serverArgs[0]" + ignored + "--disables); did you mean --disable? Use k3s.disable instead",
				"k3s.serverArgs[1]" + ignored + "--disable-networkpolicy); did you mean --disable-network-policy?",
				"k3s.serverArgs[2]" + ignored + "--audit); correct it: 'k3s server --help' lists the options",
				"k3s.serverArgs[3]" + ignored + "--disable-apiserver-lb); move it to k3s.agentArgs",
				"k3s.serverArgs[4]" + ignored + "--tls-sans); did you mean --tls-san?",
				"k3s.serverArgs[5]" + ignored + "--tokens); did you mean --token? Use k3sToken instead",
				"k3s.agentArgs[0]" + fatal + "--kubelet-args); did you mean --kubelet-arg?",
				"k3s.agentArgs[1]" + fatal + "--tls-sans); correct it: 'k3s agent --help' lists the options",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := onK3s(small().with("worker", workersWith(spec.VMSpec{})))
			s.K3s = &spec.K3s{ServerArgs: test.servers, AgentArgs: test.agents}

			assert.Equal(t, test.want, said(t, s))
		})
	}
}

// TestOptionsOfNewerReleases: releases that came out after the list of options may have more of them.
func TestOptionsOfNewerReleases(t *testing.T) {
	t.Parallel()

	for version, warned := range map[string]bool{
		"v1.28.15+k3s1": false, "v1.34.3+k3s1": false, "v1.34.4+k3s1": true, "v1.35.0+k3s1": false, "v1.36.0+k3s1": true,
	} {
		s := onK3s(small())
		s.Cluster.Versions.K3s = version
		s.K3s = &spec.K3s{ServerArgs: []string{"--kube-apiserver-args=hunter2"}}

		p, err := Plan(spec.Spec(s))
		if !warned {
			require.ErrorContains(t, err, "k3s.serverArgs[0]: is an option that 'k3s server' does not have", version)

			continue
		}

		require.NoError(t, err, version)
		require.Len(t, p.Warnings, 1)
		assert.Equal(t, "k3s.serverArgs[0]: is an option that 'k3s server' does not have in the releases up to "+
			"v1.35.0+k3s1: if the release of cluster.versions.k3s does not have it either, servers would ignore it "+
			"(given: --kube-apiserver-args); did you mean --kube-apiserver-arg?", p.Warnings[0].String())
	}
}

// TestExplainedArguments: where decisions are explained, arguments are shown without secrets.
func TestExplainedArguments(t *testing.T) {
	t.Parallel()

	s := onK3s(small())
	s.K3s = &spec.K3s{
		ServerArgs: []string{"--etcd-s3", "--etcd-s3-secret-key=a b", "--etcd-s3-bucket=c", "--vpn-auth=name=x,joinKey=y"},
	}

	p, err := Plan(spec.Spec(s))
	require.NoError(t, err)

	shown := map[string]string{}
	for _, d := range plan.Explain(spec.Spec(s), p) {
		shown[d.What] = d.Value
	}

	assert.Equal(t, "--etcd-s3 --etcd-s3-secret-key=*** --etcd-s3-bucket=c --vpn-auth=***", shown["arguments of servers"])
}
