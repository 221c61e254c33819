package export

import (
	"bytes"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/stacks/contract"
)

// host is a node in an inventory.
type host struct {
	Address string `yaml:"ansible_host,omitempty"`
	VMID    int    `yaml:"vmid"`
	Proxmox string `yaml:"proxmox_node"`
	GPU     string `yaml:"gpu_pci_bdf,omitempty"`
}

type inventory struct {
	All struct {
		Children map[string]group  `yaml:"children"`
		Vars     map[string]string `yaml:"vars"`
	} `yaml:"all"`
}

type group struct {
	Hosts map[string]host `yaml:"hosts"`
}

// Ansible writes an inventory in YAML, with the groups of the contract. Talos has neither SSH nor Python: tasks run on
// the control machine, for example talosctl and kubectl with {{ ansible_host }}. K3s nodes are reached by SSH. A node
// whose address is not known is there without one.
func Ansible(c *contract.Contract) ([]byte, error) {
	var i inventory

	i.All.Vars = map[string]string{
		"ansible_connection": "local", "cluster": c.Cluster,
	}

	for name, version := range map[string]string{
		"talos_version": c.Versions.Talos, "k3s_version": c.Versions.K3s, "kubernetes_version": c.Versions.Kubernetes,
	} {
		if version != "" {
			i.All.Vars[name] = version
		}
	}

	// Ubuntu has both.
	if c.Versions.K3s != "" {
		i.All.Vars["ansible_connection"] = "ssh"
	}

	i.All.Children = map[string]group{
		"control_plane": hosts(c.BootstrapNodes.ControlPlane), "workers": hosts(c.BootstrapNodes.Workers),
		"gpu_workers": hosts(c.BootstrapNodes.GPUWorkers),
	}

	var b bytes.Buffer

	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(i)

	return b.Bytes(), err
}

func hosts(nodes []contract.BootstrapNode) group {
	g := group{Hosts: map[string]host{}}

	for _, n := range nodes {
		h := host{VMID: n.VMID, Proxmox: n.Host}
		if n.IP != nil {
			h.Address = *n.IP
		}

		if n.GPU != nil {
			h.GPU = *n.GPU
		}

		g.Hosts[n.Name] = h
	}

	return g
}
