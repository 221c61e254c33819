package components

import (
	"testing"

	"talos-proxmox/components/plan"
)

// builtSpec is a small cluster on two hosts.
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
