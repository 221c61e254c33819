package machineconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// authority is a certificate authority that signed nothing.
const authority = `-----BEGIN CERTIFICATE-----
MIIBMjCB5aADAgECAhQZ+1e+rWw7vT2ghKEC/YxnCOzgEDAFBgMrZXAwDjEMMAoG
A1UEAwwDbGFiMCAXDTI2MTEyMTE1MjExNVoYDzIxMjYxMDI4MTUyMTE1WjAOMQww
CgYDVQQDDANsYWIwKjAFBgMrZXADIQCLTUGsRb9ExdQEJiFR52kJfnaLRxsCqcfu
a5bXNT86GKNTMFEwHQYDVR0OBBYEFGP6hDi/oyBBgKCmTnP72cOPJZR4MB8GA1Ud
IwQYMBaAFGP6hDi/oyBBgKCmTnP72cOPJZR4MA8GA1UdEwEB/wQFMAMBAf8wBQYD
K2VwA0EA8EGC4nuIT92v9eTCtAwpYaOMYFFRDwpQT6mrxQvRfAWyhaVj345N7v6O
jrqlqhqyFDgnQsna4jvY4EqbkMBeDQ==
-----END CERTIFICATE-----`

// around is a cluster that is told of everything around it.
func around(versions spec.Versions) spec.Spec {
	s := plantest.Atlas(versions)
	s.Cluster.CNI = spec.CNI{}
	s.Network.TimeServers = []string{"10.0.0.1", "time.example.com"}
	s.Cluster.RegistryMirrors = map[string][]string{
		"docker.io": {"https://registry.lan:5000", "https://mirror.example.com/docker"}, "*": {"http://10.0.0.5:5000"},
	}
	s.Cluster.TrustedCAs = []spec.InlineOrFile{{Path: "cluster.trustedCAs[0]", Origin: "ca.pem", Text: authority}}
	s.Cluster.Logs = spec.Logs{
		Services: []string{"tcp://10.0.0.5:5044"},
		Kernel:   []string{"udp://10.0.0.5:6050", "tcp://logs.example.com:6051"},
	}
	s.Cluster.Encryption = spec.EncryptionNodeID
	s.Cluster.Manifests = []spec.InlineOrFile{
		{
			Path: "cluster.manifests[0]", Origin: "gitops/namespace.yaml",
			Text: "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: flux-system\n",
		},
		{Path: "cluster.manifests[1]", Origin: "https://example.com/flux.yaml", Text: "https://example.com/flux.yaml"},
	}

	return s
}

// older is before disks were encrypted by documents of their own.
var older = spec.Versions{Talos: "v1.10.3", Kubernetes: "v1.32.1"}

// TestServices: what nodes are told of what is around them, for the generations of Talos' documents.
func TestServices(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.10": older, "1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, around(versions))
			accepted(t, "services-"+name+".yaml", p)

			control, worker := fullConfiguration(t, p, p.Pools[0].Nodes[0]), fullConfiguration(t, p, p.Pools[1].Nodes[0])

			if diff := cmp.Diff([]string{"10.0.0.1", "time.example.com"}, worker.NetworkTimeSyncConfig().Servers()); diff != "" {
				t.Errorf("time servers: %s", diff)
			}

			mirrors := map[string][]string{}

			for registry, m := range worker.RegistryMirrorConfigs() {
				for _, e := range m.Endpoints() {
					mirrors[registry] = append(mirrors[registry], e.Endpoint())
				}
			}

			if diff := cmp.Diff(around(versions).Cluster.RegistryMirrors, mirrors); diff != "" {
				t.Errorf("mirrors: %s", diff)
			}

			if got := worker.TrustedRoots().ExtraTrustedRootCertificates(); len(got) != 1 ||
				got[0] != "\natlas:\n======\n"+authority+"\n" {
				t.Errorf("certificate authorities: %q", got)
			}

			var logs []string
			for _, d := range worker.Machine().Logging().Destinations() {
				logs = append(logs, d.Endpoint().String()+" "+d.Format())
			}

			for _, u := range worker.Runtime().KmsgLogURLs() {
				logs = append(logs, u.String())
			}

			if diff := cmp.Diff([]string{"tcp://10.0.0.5:5044 json_lines", "udp://10.0.0.5:6050", "tcp://logs.example.com:6051"},
				logs); diff != "" {
				t.Errorf("logs: %s", diff)
			}

			for _, volume := range []string{"STATE", "EPHEMERAL"} {
				if keys := keysOf(worker, volume); len(keys) != 1 || keys[0].NodeID() == nil || keys[0].TPM() != nil {
					t.Errorf("keys of %s: %v", volume, keys)
				}
			}

			inline := control.K8sInlineManifestConfigs()
			if len(inline) != 1 || inline[0].Name() != "gitops/namespace.yaml" || len(worker.K8sInlineManifestConfigs()) > 0 {
				t.Errorf("inline manifests: %v", inline)
			}

			external := control.K8sExternalManifestConfigs()
			if len(external) != 1 || external[0].URL() != "https://example.com/flux.yaml" {
				t.Errorf("manifests: %v", external)
			}
		})
	}
}

// TestTPM: the key is the TPM's, and all but STATE opens only together with the STATE it belongs to.
func TestTPM(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.10": older, "1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			s := plantest.Atlas(versions)
			s.Cluster.CNI = spec.CNI{}
			s.Cluster.Encryption = spec.EncryptionTPM
			s.Image = spec.Image{Source: spec.SourceTemplate, Template: spec.TemplateImage{Control: "9000", Worker: "9000"}}
			s.Image.SecureBoot = true
			s.Network.Nameservers = nil
			s.Defaults.TPM = new(true)
			p := plantest.New(t, s)
			accepted(t, "tpm-"+name+".yaml", p)

			cfg := fullConfiguration(t, p, p.Pools[0].Nodes[0])

			for volume, locked := range map[string]bool{"STATE": false, "EPHEMERAL": name != "1.10"} {
				if keys := keysOf(cfg, volume); len(keys) != 1 || keys[0].TPM() == nil || keys[0].LockToSTATE() != locked {
					t.Errorf("keys of %s: %v", volume, keys)
				}
			}
		})
	}
}

func keysOf(cfg talosconfig.Provider, volume string) []config.EncryptionKey {
	if old := cfg.Machine().SystemDiskEncryption().Get(volume); old != nil {
		return old.Keys()
	}

	v, ok := cfg.Volumes().ByName(volume)
	if !ok {
		return nil
	}

	return v.Encryption().Keys()
}
