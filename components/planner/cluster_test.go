package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// said are the problems of a spec, as lines; none where it can be planned.
func said(t *testing.T, s draft) []string {
	t.Helper()

	_, err := Plan(spec.Spec(s))
	if err == nil {
		return nil
	}

	var problems spec.Problems
	require.ErrorAs(t, err, &problems)

	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}

	return all
}

// warningsOf are the warnings of a plan, as lines.
func warningsOf(p *plan.Plan) []string {
	var all []string
	for _, w := range p.Warnings {
		all = append(all, w.String())
	}

	return all
}

// TestControlPlanesWithGPUs: GPUs say how many nodes a pool has, as count and nodes do.
func TestControlPlanesWithGPUs(t *testing.T) {
	t.Parallel()

	const one = "cluster.ha: needs an odd number of control planes, three at least (given: 1 control plane); " +
		"set the count to 3 or 5, or ha to false"

	for name, test := range map[string]struct {
		gpus map[string]spec.GPUSpec
		ha   bool
		want []string
	}{
		"none": {
			gpus: map[string]spec.GPUSpec{},
			want: []string{"pools: need at least one control plane; add a pool with role: controlplane and count: 1"},
		},
		"one":                        {gpus: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}}},
		"one with high availability": {gpus: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}}, ha: true, want: []string{one}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small()
			s.Cluster.HA = test.ha
			s = s.with("control", spec.Pool{
				Role: spec.RoleControlPlane, GPUs: test.gpus, Addresses: "10.0.0.11-10.0.0.19",
				Image: spec.PoolImage{Template: "9000"},
			})

			assert.Equal(t, test.want, said(t, s))
		})
	}

	s := small().with("more", spec.Pool{
		Role: spec.RoleControlPlane, GPUs: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}}, VMIDs: "801-809",
		Addresses: "10.0.1.11-10.0.1.19", Image: spec.PoolImage{Template: "9000"},
	})

	assert.Contains(t, strings.Join(warningsOf(placed(t, s)), "\n"), "an even number of control planes tolerates no more "+
		"failures "+
		"than one fewer (given: 2 control planes)")
}

// TestStatedCNI: production is warned of a pod network that was not chosen.
func TestStatedCNI(t *testing.T) {
	const warning = "cluster.cni.name: is not set, and a running cluster keeps its pod network: Flannel enforces no " +
		"network policies (given: flannel); choose flannel, cilium or none"

	for _, c := range []struct {
		environment spec.Environment
		stated      spec.CNIName
		bootstrap   spec.BootstrapMode
		warned      bool
	}{
		{environment: spec.EnvironmentProduction, warned: true},
		{environment: spec.EnvironmentProduction, stated: spec.CNIFlannel},
		{environment: spec.EnvironmentLab},
		{environment: spec.EnvironmentProduction, bootstrap: spec.BootstrapExternal},
	} {
		kubernetes := "v1.34.2"
		if c.bootstrap == spec.BootstrapExternal {
			kubernetes = ""
		}

		p, err := Plan(spec.Spec{
			Environment: c.environment,
			Proxmox:     spec.Proxmox{Hosts: []spec.Host{{Name: "pve"}}},
			Cluster: spec.Cluster{
				Name: "c", Bootstrap: c.bootstrap, CNI: spec.CNI{Name: c.stated},
				Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: kubernetes},
			},
			Network: spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
			Pools:   map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"}},
		})
		if err != nil {
			t.Fatal(err)
		}

		warned := false
		for _, w := range p.Warnings {
			warned = warned || w.String() == warning
		}

		if warned != c.warned {
			t.Errorf("%+v: %v", c, p.Warnings)
		}
	}
}

// TestPlainSnapshots: in production, snapshots of etcd are not kept in plain text unnoticed.
func TestPlainSnapshots(t *testing.T) {
	t.Parallel()

	const want = "lifecycle.backup.recipients: is empty, so snapshots of etcd hold all Secrets of Kubernetes in plain text"

	warned := func(change func(*spec.Spec)) bool {
		s := spec.Spec(small().scheduling())
		s.Environment = spec.EnvironmentProduction
		change(&s)

		p, err := Plan(s)
		require.NoError(t, err)

		return slices.ContainsFunc(p.Warnings, func(w spec.Problem) bool { return strings.HasPrefix(w.String(), want) })
	}

	assert.True(t, warned(func(*spec.Spec) {}))
	assert.False(t, warned(func(s *spec.Spec) { s.Environment = spec.EnvironmentLab }))
	assert.False(t, warned(func(s *spec.Spec) { s.Provided.BackupPassphrase = true }))
	assert.False(t, warned(func(s *spec.Spec) { s.Lifecycle.Backup.Enabled = new(false) }))
	assert.False(t, warned(func(s *spec.Spec) {
		s.Lifecycle.Backup.Recipients = []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}
	}))
}
