// Package plantest has plans for tests.
package plantest

import (
	"testing"

	"talos-proxmox/components/plan"
)

// K3s is a cluster of one K3s server, at an address of this machine.
func K3s(t *testing.T) *plan.Plan {
	t.Helper()

	return New(t, plan.Spec{
		Hosts: []plan.Host{{Name: "a"}, {Name: "b"}}, SSH: &plan.SSH{Username: "root"}, Given: plan.Secrets{SSHKey: true},
		Cluster: plan.Cluster{Name: "edge", Kind: plan.KindK3s, Versions: plan.Versions{K3s: "v1.34.2+k3s1"}},
		Image:   plan.Image{Template: plan.TemplateImage{Control: "ubuntu", Worker: "ubuntu"}},
		Network: plan.Network{CIDR: "127.0.0.0/8", Gateway: "127.0.0.1"},
		Pools:   map[string]plan.Pool{"server": {Role: plan.ControlPlane, Count: new(1), Addresses: "127.0.0.9"}},
		// There is no server to wait for.
		Lifecycle: plan.Lifecycle{ReadyTimeout: "300ms"},
	})
}

// Spec is a small cluster on two hosts.
func Spec() plan.Spec {
	return plan.Spec{
		Hosts: []plan.Host{{Name: "a"}, {Name: "b"}},
		Cluster: plan.Cluster{Name: "c", Versions: plan.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"},
			CNI: plan.CNI{Name: plan.NoCNI}},
		Image: plan.Image{Source: plan.Template, Template: plan.TemplateImage{Control: "9000", Worker: "9000",
			GPUWorker: "9000"}},
		Network: plan.Network{CIDR: "10.0.0.0/24", VLAN: 20},
		Pools: map[string]plan.Pool{
			"control": {Role: plan.ControlPlane, Count: new(1), Addresses: "10.0.0.11", Shape: plan.Shape{
				Cores: new(4), OnBoot: new(false), Labels: map[string]string{"a": "b"}, Tags: []string{"x"},
				Disk: plan.DiskOptions{Datastore: new("tank"), Interface: new("virtio0")},
			}},
		},
	}
}

// New is the plan of a spec.
func New(t *testing.T, s plan.Spec) *plan.Plan {
	t.Helper()

	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// Template is a plan of two control planes that are clones of a template.
func Template() *plan.Plan {
	node := plan.Node{
		Name: "c-control-1", Pool: "control", Role: plan.ControlPlane, Host: "pve", VMID: 401, Template: "talos-v1.12.4-base",
		Disks: []plan.Disk{{Interface: "scsi0", Datastore: "local-lvm", SizeGiB: 40}},
	}
	other := node
	other.Name, other.VMID = "c-control-2", 402

	return &plan.Plan{Kind: plan.KindTalos, Cluster: "c", Pools: []plan.PlannedPool{{
		Name: "control", Role: plan.ControlPlane, Image: plan.BootImage{Path: "image.template.control"},
		Nodes: []plan.Node{node, other},
	}}}
}

// ISO is a plan of three control planes on two hosts that boot an ISO file.
func ISO(t *testing.T) *plan.Plan {
	return New(t, plan.Spec{
		Hosts:   []plan.Host{{Name: "a"}, {Name: "b"}},
		Cluster: plan.Cluster{Name: "c", Versions: plan.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Image:   plan.Image{Source: plan.ISO, ISO: plan.ISOImage{Volume: "local:iso/talos-1.12.4.iso"}},
		Network: plan.Network{CIDR: "10.0.0.0/24"},
		Pools:   map[string]plan.Pool{"control": {Role: plan.ControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}},
	})
}
