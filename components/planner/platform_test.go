package planner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/spec"
)

// TestSchedulable: control planes run pods if the key says so, and a cluster in which no node does is warned of.
func TestSchedulable(t *testing.T) {
	t.Parallel()

	const (
		without = "cluster.schedulableControlPlanes: leaves no node for pods: there are no workers (given: false); " +
			"add a pool of workers, or leave it out"
	)

	worker := spec.Pool{Role: spec.RoleWorker, Count: new(1), Addresses: "10.2.0.1-9"}
	patched := small()
	patched.Cluster.Patches = []spec.Patch{{Text: "cluster: { allowSchedulingOnControlPlanes: true }"}}

	for name, c := range map[string]struct {
		draft draft
		given *bool
		want  bool
		warns []string
	}{
		"alone":                     {small(), nil, true, nil},
		"alone, as a patch decides": {patched, nil, false, nil},
		"alone, true":               {small(), new(true), true, nil},
		"alone, false":              {small(), new(false), false, []string{without}},
		"with workers":              {small().with("worker", worker), nil, false, nil},
		"with workers, as is true":  {small().with("worker", worker), new(true), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c.draft.Cluster.SchedulableControlPlanes = c.given
			p := placed(t, c.draft)

			var warns []string
			for _, w := range p.Warnings {
				warns = append(warns, w.String())
			}

			assert.Equal(t, c.want, p.SchedulableControls)
			assert.Equal(t, c.warns, warns)
		})
	}
}

// TestLonghornImage: a pool's own schematic is all that its image holds.
func TestLonghornImage(t *testing.T) {
	t.Parallel()

	tools := []string{"iscsi-tools", "siderolabs/util-linux-tools"}
	other := &spec.Schematic{Extensions: []string{"tailscale"}}

	for name, c := range map[string]struct {
		image spec.Image
		pool  *spec.Schematic
		want  int
	}{
		"not set":                       {small().Image, nil, 0},
		"in the image":                  {spec.Image{Schematic: &spec.Schematic{Extensions: tools}}, nil, 0},
		"the pool's own lacks both":     {spec.Image{Schematic: &spec.Schematic{Extensions: tools}}, other, 2},
		"the pool's own has them":       {spec.Image{Schematic: other}, &spec.Schematic{Extensions: tools}, 0},
		"the pool's own is known":       {spec.Image{Schematic: other}, &spec.Schematic{ID: strings.Repeat("a", 64)}, 0},
		"the factory's, with one":       {spec.Image{Factory: spec.FactoryImage{Extensions: tools[:1]}}, nil, 1},
		"the factory's, with nothing":   {spec.Image{Source: spec.SourceFactory}, nil, 2},
		"the factory's, with all of it": {spec.Image{Factory: spec.FactoryImage{Extensions: tools}}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small()
			s.Network.Gateway, s.Cluster.Addons = "10.0.0.1", []spec.Addon{spec.AddonLonghorn}

			switch {
			case c.image.Schematic != nil:
				s.Image.Schematic = c.image.Schematic
			case c.image.Template.Control == "":
				c.image.Source = spec.SourceFactory
				s.Image = c.image
			}

			pool := s.Pools["control"]
			pool.Image.Schematic = c.pool
			_, err := Plan(spec.Spec(s.with("control", pool)))

			var said string
			if err != nil {
				said = err.Error()
			}

			assert.Equal(t, c.want, strings.Count(said, "for the addon longhorn"), said)
			assert.Equal(t, c.want > 0, said != "", said)
		})
	}
}

// TestProxmoxAddons: addons that log in to Proxmox VE need a token, which a stack file does not show.
func TestProxmoxAddons(t *testing.T) {
	t.Parallel()

	s := small()
	s.Cluster.Region, s.Cluster.Addons = "lan", []spec.Addon{spec.AddonProxmoxCSI, spec.AddonProxmoxCCM}
	s.Provided.CCMToken = true

	_, err := Plan(spec.Spec(s))
	assert.ErrorContains(t, err, "csiToken: is required with the addon proxmox-csi; "+
		"run: pulumi config set --secret csiToken, with user@realm!name=secret")
	assert.NotContains(t, err.Error(), "ccmToken")
}

// TestVersionOfAuthentication: an API server knows the versions of its configuration that there were at its release.
func TestVersionOfAuthentication(t *testing.T) {
	t.Parallel()

	const (
		path  = "cluster.apiServer.authentication: "
		later = path + "needs Kubernetes 1.34 or later: older API servers do not know its version (given: " +
			"apiserver.config.k8s.io/v1); write apiVersion: apiserver.config.k8s.io/v1beta1, or raise " +
			"cluster.versions.kubernetes"
	)

	for name, test := range map[string]struct {
		kubernetes, version string
		want                []string
	}{
		"v1 on 1.34":      {"v1.34.2", "v1", nil},
		"v1 on 1.33":      {"v1.33.6", "v1", []string{later}},
		"v1beta1 on 1.33": {"v1.33.6", "v1beta1", nil},
		"v1beta1 on 1.34": {"v1.34.2", "v1beta1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small()
			s.Cluster.Versions.Kubernetes = test.kubernetes
			s.Cluster.APIServer.Authentication = &spec.InlineOrFile{
				Text: "apiVersion: apiserver.config.k8s.io/" + test.version + "\nkind: AuthenticationConfiguration\njwt: []\n",
			}

			assert.Equal(t, test.want, said(t, s))
		})
	}
}

// TestDefinitionsOfGateways: the addon has one version of the Gateway API for all versions of Cilium.
func TestDefinitionsOfGateways(t *testing.T) {
	t.Parallel()

	for version, warned := range map[string]bool{"1.16.9": true, "1.17.4": false, "1.19.2": false, "1.20.1": true} {
		s := small().scheduling()
		s.Cluster.CNI = spec.CNI{Name: spec.CNICilium, Version: version, KubeProxy: new(false)}
		s.Cluster.Addons = []spec.Addon{spec.AddonGatewayAPI}

		var want []string
		if warned {
			want = []string{"cluster.addons: gateway-api installs the definitions of the Gateway API 1.4.1, and Cilium " +
				version + " may want others and start no gateway without them (given: gateway-api); check the prerequisites in " +
				"Cilium's documentation of the Gateway API; to install others, leave the addon out, name their file in " +
				"cluster.manifests, and set gatewayAPI.enabled in cluster.cni.values"}
		}

		assert.Equal(t, want, warningsOf(placed(t, s)), version)
	}
}
