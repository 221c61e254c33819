package k3sconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// TestDiffer: what of a change reaches no node that runs is named, and nothing else.
func TestDiffer(t *testing.T) {
	t.Parallel()

	told := func(change func(p *plan.Plan, i *Identity)) string {
		p, i := planned(t), identity()
		change(p, &i)

		text, err := UserData(p, Node{Planned: p.Nodes()[0], First: true}, i, Secrets{})
		require.NoError(t, err)

		return text
	}
	then := told(func(*plan.Plan, *Identity) {})

	for name, c := range map[string]struct {
		change func(p *plan.Plan, i *Identity)
		want   []string
	}{
		"nothing": {change: func(*plan.Plan, *Identity) {}},
		"a version, which is carried over": {change: func(p *plan.Plan, _ *Identity) {
			p.K3s.Version,
				p.K3s.Checksum = "v1.34.3+k3s1", ""
		}},
		"another server": {change: func(p *plan.Plan, _ *Identity) { p.Pools[0].Nodes = p.Pools[0].Nodes[:2] }},
		"components and arguments": {
			change: func(p *plan.Plan, _ *Identity) {
				p.K3s.Disable, p.K3s.ServerArgs = nil, []string{"--debug", "--tls-san=other.example.com"}
			},
			want: []string{"debug", "disable", "kube-apiserver-arg", "secrets-encryption", "tls-san"},
		},
		"mirrors and authorities": {
			change: func(p *plan.Plan, _ *Identity) {
				p.Mirrors = []plan.Mirror{{Registry: "*", Endpoints: []string{"https://registry.lan"}}}
				p.TrustedCAs = []spec.InlineOrFile{{Text: "another"}}
			},
			want: []string{"registries", "certificate authorities"},
		},
		"a token":  {change: func(_ *plan.Plan, i *Identity) { i.Token = "another" }, want: []string{"token"}},
		"keys":     {change: func(p *plan.Plan, _ *Identity) { p.K3s.SSHKeys = nil }, want: []string{"users and SSH keys"}},
		"packages": {change: func(p *plan.Plan, _ *Identity) { p.K3s.Packages = nil }, want: []string{"packages"}},
		"labels and taints, which are the program's": {change: func(p *plan.Plan, _ *Identity) {
			n := &p.Pools[0].Nodes[0]
			n.Labels, n.Taints = map[string]string{"a": "b"}, map[string]string{"a": "NoSchedule"}
		}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, Differ(then, told(c.change))) })
	}
}
