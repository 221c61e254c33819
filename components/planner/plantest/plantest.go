// Package plantest has plans for tests.
package plantest

import (
	"testing"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
)

// K3s is a cluster of one K3s server, at an address of this machine.
func K3s(t *testing.T) *plan.Plan {
	t.Helper()

	return New(t, spec.Spec{
		Proxmox:  spec.Proxmox{Hosts: []spec.Host{{Name: "a"}, {Name: "b"}}, SSH: &spec.SSH{Username: "root"}},
		Provided: spec.SecretsProvided{SSHKey: true},
		Cluster: spec.Cluster{
			Name: "edge", Distribution: spec.DistributionK3s,
			Versions: spec.Versions{K3s: "v1.34.2+k3s1"},
		},
		Image:   spec.Image{Template: spec.TemplateImage{Control: "ubuntu", Worker: "ubuntu"}},
		Network: spec.Network{CIDR: "127.0.0.0/8", Gateway: "127.0.0.1"},
		Pools:   map[string]spec.Pool{"server": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "127.0.0.9"}},
		// There is no server to wait for.
		Lifecycle: spec.Lifecycle{ReadyTimeout: "300ms"},
	})
}

// Spec is a small cluster on two hosts.
func Spec() spec.Spec {
	return spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "a"}, {Name: "b"}}},
		Cluster: spec.Cluster{
			Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"},
			CNI: spec.CNI{Name: spec.CNINone},
		},
		Image: spec.Image{Source: spec.SourceTemplate, Template: spec.TemplateImage{
			Control: "9000", Worker: "9000",
			GPUWorker: "9000",
		}},
		Network: spec.Network{CIDR: "10.0.0.0/24", VLAN: 20},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11", VMSpec: spec.VMSpec{
				Cores: new(4), OnBoot: new(false), Labels: map[string]string{"a": "b"}, Tags: []string{"x"},
				Disk: spec.DiskOptions{Datastore: new("tank"), Interface: new("virtio0")},
			}},
		},
	}
}

// New is the plan of a spec.
func New(t testing.TB, s spec.Spec) *plan.Plan {
	t.Helper()

	p, err := planner.Plan(s)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// Template is a plan of two control planes that are clones of a template.
func Template() *plan.Plan {
	node := plan.Node{
		Name: "c-control-1", Pool: "control", Role: spec.RoleControlPlane, Host: "pve", VMID: 401,
		Template: "talos-v1.12.4-base",
		Disks:    []plan.Disk{{Interface: "scsi0", Datastore: "local-lvm", SizeGiB: 40}},
	}
	other := node
	other.Name, other.VMID = "c-control-2", 402

	return &plan.Plan{Distribution: spec.DistributionTalos, Cluster: "c", Pools: []plan.PlannedPool{{
		Name: "control", Role: spec.RoleControlPlane, Image: plan.BootImage{Path: "image.template.control"},
		Nodes: []plan.Node{node, other},
	}}}
}

// ISO is a plan of three control planes on two hosts that boot an ISO file.
func ISO(t *testing.T) *plan.Plan {
	return New(t, spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "a"}, {Name: "b"}}},
		Cluster: spec.Cluster{Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Image:   spec.Image{Source: spec.SourceISO, ISO: spec.ISOImage{Volume: "local:iso/talos-1.12.4.iso"}},
		Network: spec.Network{CIDR: "10.0.0.0/24"},
		Pools:   map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-13"}},
	})
}
