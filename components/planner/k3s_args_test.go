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
		long    = ": must be a long option of k3s"
		example = "; write it like --kube-apiserver-arg=audit-log-maxage=30"
		moved   = "); move it there"
		servers = ": belongs in k3s.serverArgs: agents have no such option (given: "
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := onK3s(small().with("worker", workersWith(spec.VMSpec{})))
			s.K3s = &spec.K3s{ServerArgs: test.servers, AgentArgs: test.agents}

			assert.Equal(t, test.want, said(t, s))
		})
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
