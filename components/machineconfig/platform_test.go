package machineconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// platform is a cluster without workers that has everything for those who work on it.
func platform(versions spec.Versions) spec.Spec {
	s := plantest.Atlas(versions)
	s.Cluster.CNI = spec.CNI{}
	delete(s.Pools, "worker")

	s.Cluster.Region = "lan"
	s.Cluster.SchedulableControlPlanes = new(true)
	s.Cluster.Addons = []spec.Addon{
		spec.AddonMetricsServer, spec.AddonLocalPath, spec.AddonGatewayAPI, spec.AddonArgoCD,
	}
	s.Cluster.CNI.LoadBalancer = &spec.LoadBalancer{Addresses: []string{"10.0.0.200-10.0.0.220"}}
	s.Cluster.ManifestMirror = "http://mirror.lan/manifests/"
	s.Cluster.Endpoint.Names = []string{"api.example.com", "10.0.0.11", "192.0.2.7"}
	s.Cluster.RegistryMirrors = map[string][]string{"docker.io": {"https://registry.lan/v2/hub"}}
	s.Cluster.RegistryOptions = map[string]spec.RegistryOptions{"docker.io": {OverridePath: true, SkipFallback: true}}
	s.Cluster.TrustedCAs = []spec.InlineOrFile{{Path: "cluster.trustedCAs[0]", Origin: "ca.pem", Text: authority}}
	s.Cluster.Proxy = &spec.Proxy{HTTPS: "http://proxy.lan:3128", Except: []string{".example.com"}}
	s.Cluster.APIServer = spec.APIServer{
		OIDC: &spec.OIDC{Issuer: "https://login.example.com", ClientID: "kubernetes", GroupsClaim: "groups"},
		Audit: &spec.InlineOrFile{Text: "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n" +
			"  resources:\n  - group: \"\"\n    resources: [secrets]\n"},
		Admission: map[string]map[string]any{"EventRateLimit": {
			"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration",
			"limits": []any{map[string]any{"type": "Namespace", "qps": 50, "burst": 100}},
		}},
	}

	return s
}

// TestPlatform: what is rendered for those who work on the cluster, for the generations of Talos' documents.
func TestPlatform(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, platform(versions))
			accepted(t, "platform-"+name+".yaml", p)

			c := fullConfiguration(t, p, p.Pools[0].Nodes[0])
			raw := c.RawV1Alpha1()

			require.True(t, raw.ClusterConfig.ScheduleOnControlPlanes())
			require.Equal(t, []string{"true"}, c.K8sKubeletConfig().ExtraArgs()["rotate-server-certificates"])
			require.Equal(t, []string{"proxmox://lan/401"}, c.K8sKubeletConfig().ExtraArgs()["provider-id"])
			require.Equal(t, "http://proxy.lan:3128", raw.MachineConfig.MachineEnv["https_proxy"])
			require.Contains(t, raw.MachineConfig.MachineEnv["no_proxy"], ",10.0.0.0/16,10.244.0.0/16,")
			require.Equal(t, []string{"https://login.example.com"}, c.K8sAPIServerConfig().ExtraArgs()["oidc-issuer-url"])
			require.Contains(t, c.K8sAPIServerConfig().CertSANs(), "api.example.com")
			require.Contains(t, c.Machine().Security().CertSANs(), "192.0.2.7")
			require.True(t, c.RegistryMirrorConfigs()["docker.io"].SkipFallback())
			require.True(t, c.RegistryMirrorConfigs()["docker.io"].Endpoints()[0].OverridePath())

			require.NotContains(t, raw.MachineConfig.MachineNodeLabels, constants.LabelExcludeFromExternalLB)
			require.Equal(t, []string{
				"http://mirror.lan/manifests/github.com/kubernetes-sigs/gateway-api/releases/download/v1.4.1/standard-install.yaml",
			}, raw.ClusterConfig.ExtraManifests)

			rules := raw.ClusterConfig.APIServerConfig.AuditPolicyConfig.Object["rules"]
			if diff := cmp.Diff([]any{map[string]any{
				"level": "Metadata", "resources": []any{map[string]any{"group": "", "resources": []any{"secrets"}}},
			}}, rules); diff != "" {
				t.Error(diff)
			}

			plugins := map[string]bool{}
			for _, plugin := range raw.ClusterConfig.APIServerConfig.AdmissionControlConfig {
				plugins[plugin.PluginName] = true
			}

			// Talos' own stays.
			require.Equal(t, map[string]bool{"PodSecurity": true, "EventRateLimit": true}, plugins)
		})
	}
}

// TestOldContract: the label of control planes is taken off only where Talos sets it.
func TestOldContract(t *testing.T) {
	for contract, want := range map[string]bool{"v1.7.0": false, "v1.8.0": true} {
		versions := plantest.Talos112
		versions.Contract = contract

		p := plantest.New(t, platform(versions))
		patches, err := Patches(p, p.Pools[0])
		require.NoError(t, err)
		require.Equal(t, want, strings.Contains(strings.Join(patches, ""), constants.LabelExcludeFromExternalLB), contract)
		require.NotContains(t, fullConfiguration(t, p, p.Pools[0].Nodes[0]).RawV1Alpha1().MachineConfig.MachineNodeLabels,
			constants.LabelExcludeFromExternalLB)
	}
}

// TestAuthentication: the configuration reaches the API server as a file of the host.
func TestAuthentication(t *testing.T) {
	s := plantest.Atlas(plantest.Talos112)
	s.Cluster.APIServer.Authentication = &spec.InlineOrFile{
		Text: "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt: []\n",
	}
	p := plantest.New(t, s)
	c := fullConfiguration(t, p, p.Pools[0].Nodes[0])

	files, err := c.Machine().Files()
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, s.Cluster.APIServer.Authentication.Text, files[0].Content())

	path := c.K8sAPIServerConfig().ExtraArgs()["authentication-config"][0]
	require.Equal(t, files[0].Path(), path)
	require.True(t, strings.HasPrefix(path, c.RawV1Alpha1().ClusterConfig.APIServerConfig.ExtraVolumesConfig[0].MountPath()))

	// Workers run pods here, and control planes do not.
	require.False(t, c.RawV1Alpha1().ClusterConfig.ScheduleOnControlPlanes())

	s.Cluster.SchedulableControlPlanes = new(true)
	p = plantest.New(t, s)
	require.True(t, fullConfiguration(t, p, p.Pools[0].Nodes[0]).RawV1Alpha1().ClusterConfig.ScheduleOnControlPlanes())
}

// TestLonghorn: kubelets see what its pods mount, and only with the addon.
func TestLonghorn(t *testing.T) {
	s := plantest.Atlas(plantest.Talos112)
	s.Image.Factory.Extensions = append(s.Image.Factory.Extensions, "iscsi-tools", "util-linux-tools")

	for _, wanted := range []bool{false, true} {
		if wanted {
			s.Cluster.Addons = []spec.Addon{spec.AddonLonghorn}
		}

		p := plantest.New(t, s)
		for _, pool := range p.Pools {
			mounts := fullConfiguration(t, p, pool.Nodes[0]).RawV1Alpha1().MachineConfig.MachineKubelet.KubeletExtraMounts
			require.Equal(t, wanted, len(mounts) == 1, mounts)

			if wanted {
				require.Equal(t, "/var/lib/longhorn", mounts[0].Source)
				require.Equal(t, mounts[0].Source, mounts[0].Destination)
				require.Equal(t, []string{"bind", "rshared", "rw"}, mounts[0].Options)
			}
		}
	}
}
