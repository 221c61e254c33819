package components

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/plan"
)

// builtSpec is what these components carry out whole.
func builtSpec() plan.Spec {
	return plan.Spec{
		Hosts:   []plan.Host{{Name: "a"}, {Name: "b"}},
		Cluster: plan.Cluster{Name: "c", Versions: plan.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}, CNI: plan.CNI{Name: plan.NoCNI}},
		Image:   plan.Image{Source: plan.Template, Template: plan.TemplateImage{Control: "9000", Worker: "9000", GPUWorker: "9000"}},
		Network: plan.Network{CIDR: "10.0.0.0/24", VLAN: 20},
		Pools: map[string]plan.Pool{
			"control": {Role: plan.ControlPlane, Count: new(1), Addresses: "10.0.0.11", Shape: plan.Shape{
				Cores: new(4), OnBoot: new(false), Labels: map[string]string{"a": "b"}, Tags: []string{"x"},
				Disk: plan.DiskOptions{Datastore: new("tank"), Interface: new("virtio0")},
			}},
		},
	}
}

func planOf(t *testing.T, s plan.Spec) *plan.Plan {
	t.Helper()

	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func TestWhatIsBuiltIsNotRefused(t *testing.T) {
	if problems := unbuilt(planOf(t, builtSpec())); len(problems) > 0 {
		t.Error(problems)
	}
}

// TestUnbuilt asks for everything that can be planned and not be carried out yet: nothing of it is passed over.
func TestUnbuilt(t *testing.T) {
	const rule = "is not built yet: it can be planned, but not carried out"

	all := builtSpec()
	all.Given.MachineSecrets = true
	all.Given.TailscaleKey = true
	all.Cluster.Endpoint = plan.Endpoint{Mode: plan.DNS, Host: "api.example.com"}
	all.Cluster.CNI = plan.CNI{Name: plan.Cilium, Version: "1.18.4"}
	all.Image.Platform = plan.NoCloud
	all.Image.Schematic = &plan.Schematic{Extensions: []string{"tailscale"}}
	all.Network.Addressing, all.Network.Gateway = plan.Static, "10.0.0.1"
	all.Tailscale = &plan.Tailscale{}
	all.Firewall.Enabled = new(true)
	all.Outputs = plan.Outputs{Files: &plan.Files{Dir: "talos", Write: []plan.File{"kubeconfig"}}}
	leave := "leave it out"
	problem := func(path, value, remedy string) plan.Problem {
		return plan.Problem{Path: path, Rule: rule, Value: value, Remedy: remedy}
	}

	for name, test := range map[string]struct {
		spec plan.Spec
		want plan.Problems
	}{
		"all": {all, plan.Problems{
			problem("machineSecrets", "set", leave),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, unbuilt(planOf(t, test.spec))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
