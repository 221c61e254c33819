package machineconfig

import (
	"path/filepath"
	"strings"
	"testing"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
)

// tailnet is a cluster whose control planes join a tailnet.
func tailnet(versions spec.Versions) spec.Spec {
	s := plantest.Atlas(versions)
	s.Tailscale = &spec.Tailscale{Pools: []string{"control"}, LoginServer: "https://headscale.example.com:8080"}
	s.Provided.TailscaleKey = true

	return s
}

// TestTailscale: what lets a node join, for the pools that are to, and in no other patch.
func TestTailscale(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, tailnet(versions))

			got, err := Tailscale(p, p.Pools[0], "tskey-auth-secret")
			if err != nil {
				t.Fatal(err)
			}

			golden.Check(t, filepath.Join("testdata", "tailscale.yaml"), got)

			if none, err := Tailscale(p, p.Pools[1], "tskey-auth-secret"); err != nil || none != "" {
				t.Errorf("the workers get %q %v", none, err)
			}

			cfg, err := applyPatch(fullConfiguration(t, p, p.Pools[0].Nodes[0]), got)
			if err != nil {
				t.Fatal(err)
			}

			if warnings, err := validate(cfg); err != nil || len(warnings) > 0 {
				t.Errorf("Talos does not take it: %v %v", warnings, err)
			}

			if services := cfg.ExtensionServiceConfigs(); len(services) != 1 || services[0].Name() != "tailscale" {
				t.Errorf("%v", services)
			}
		})
	}
}

// TestTailscaleWithoutServer: Tailscale's own server needs no argument.
func TestTailscaleWithoutServer(t *testing.T) {
	s := tailnet(plantest.Talos112)
	s.Tailscale = &spec.Tailscale{}
	p := plantest.New(t, s)

	for _, pool := range p.Pools {
		got, err := Tailscale(p, pool, "k")
		if err != nil || strings.Contains(got, "TS_EXTRA_ARGS") || !strings.Contains(got, "- TS_AUTHKEY=k\n") {
			t.Error(got, err)
		}
	}
}

// TestAdvertisedEndpoint: the control planes offer the shared address to the tailnet, as the route of one address.
func TestAdvertisedEndpoint(t *testing.T) {
	s := tailnet(plantest.Talos112)
	s.Tailscale.Pools, s.Tailscale.AdvertiseEndpoint = nil, true
	s.Cluster.Endpoint = spec.Endpoint{Mode: spec.EndpointVIP, Address: "10.0.0.20"}
	p := plantest.New(t, s)

	for _, pool := range p.Pools {
		got, err := Tailscale(p, pool, "k")
		if err != nil || strings.Contains(got, "- TS_ROUTES=10.0.0.20/32\n") != (pool.Role == spec.RoleControlPlane) {
			t.Error(pool.Name, got, err)
		}
	}
}

// TestTailscaleKey: what is no key is refused and not shown.
func TestTailscaleKey(t *testing.T) {
	p := plantest.New(t, tailnet(plantest.Talos112))

	for _, key := range []string{"", "two words", "line\nbreak", "schlüssel"} {
		_, err := Tailscale(p, p.Pools[0], key)
		if err == nil || err.Error() != "tailscaleAuthKey: must not be empty, or contain characters that no key "+
			"contains, such as spaces" {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// TestTailnetIsChecked: a patch that does not go with the program's document is found before a node sees it.
func TestTailnetIsChecked(t *testing.T) {
	s := tailnet(plantest.Talos112)
	s.Cluster.Patches = []spec.Patch{{
		Path: "cluster.patches[0]", Origin: "tailscale.yaml",
		Text: "apiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: tailscale\nconfigFiles:\n  - content: \"\"\n    " +
			"mountPath: /x\n",
	}}

	const want = "the configuration has 1 problem:\n  - cluster.patches[0]: Talos refuses the machine configuration: " +
		`ExtensionServiceConfig/tailscale: extension content is required for extension "tailscale" ` +
		"(given: tailscale.yaml, for talos-cp-01); correct the patch"

	if _, err := Check(plantest.New(t, s)); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
