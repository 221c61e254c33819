package plantest

import "talos-proxmox/components/spec"

// Atlas is the home cluster of the examples: an image for each node.
func Atlas(versions spec.Versions) spec.Spec {
	return spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "atlas"}}},
		Cluster: spec.Cluster{
			Name: "atlas", Versions: versions, CNI: spec.CNI{Name: spec.CNICilium, Version: "1.16.5", KubeProxy: new(false)},
		},
		Image: spec.Image{
			Platform: spec.PlatformMetal,
			Factory:  spec.FactoryImage{Extensions: []string{"tailscale", "qemu-guest-agent"}},
		},
		Network: spec.Network{
			CIDR: "10.0.0.0/16", Gateway: "10.0.0.1", Nameservers: []string{"1.1.1.1", "8.8.8.8"},
		},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(1), Names: "talos-cp-{nn}", Addresses: "10.0.0.11-13"},
			"worker": {
				Role: spec.RoleWorker, Names: "talos-worker-{nn}", Addresses: "10.0.0.21-22",
				VMSpec: spec.VMSpec{
					Labels: map[string]string{"tier": "db", "empty": "", "node-role.kubernetes.io/worker": ""},
					Taints: map[string]string{"dedicated": "db:NoSchedule", "spot": "PreferNoSchedule"},
				},
				Nodes: map[string]spec.NodeSpec{"1": {}, "2": {
					VMSpec: spec.VMSpec{
						Annotations: map[string]string{"rack": "2"}, Labels: map[string]string{"zone": "b"},
						Disk: spec.DiskOptions{Interface: new("virtio0")},
					},
					Patches: []spec.Patch{{
						Path: "pools.worker.nodes.2.patches[0]", Origin: "node.yaml",
						Text: "machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n",
					}},
				}},
			},
		},
	}
}

// Versions of three generations of Talos.
var (
	Talos111 = spec.Versions{Talos: "v1.11.2", Kubernetes: "v1.32.1"}
	Talos112 = spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}
	Talos114 = spec.Versions{Talos: "v1.14.1", Kubernetes: "v1.37.0"}
)
