package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"talos-proxmox/components/plan"
)

// Row is one cluster that is measured, or several of them at the same time.
type Row struct {
	Kind  plan.Kind `json:"kind"`
	Nodes int       `json:"nodes"`
	Hosts int       `json:"hosts"`
	// Clusters are made at the same time, each on a Proxmox VE of its own.
	Clusters int `json:"clusters"`
}

// String names the row: "talos-5x1" is five nodes on one host.
func (r Row) String() string {
	name := fmt.Sprintf("%s-%dx%d", r.Kind, r.Nodes, r.Hosts)
	if r.Clusters > 1 {
		name = fmt.Sprintf("%dx-%s", r.Clusters, name)
	}

	return name
}

// rows are all that is measured, the quick ones first.
func rows() []Row {
	var all []Row

	all = append(all, Row{plan.KindK3s, 2, 1, 1}, Row{plan.KindK3s, 2, 1, 2})

	for _, nodes := range []int{5, 20, 50, 200} {
		for _, hosts := range []int{1, 3, 10} {
			all = append(all, Row{plan.KindTalos, nodes, hosts, 1})
		}
	}

	return all
}

// names of all rows.
func names() []string {
	var all []string
	for _, row := range rows() {
		all = append(all, row.String())
	}

	return all
}

// stackFile writes the stack of a row into a directory, and returns its path: what the shortest stack file has, at its size.
func (r Row) stackFile(dir string) (string, error) {
	hosts := make([]string, r.Hosts)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("{ name: pve%d }", i+1)
	}

	common := "config:\n" +
		"  talos-proxmox:network: { cidr: 10.0.0.0/16, gateway: 10.0.0.1 }\n" +
		"  talos-proxmox:proxmox:\n" +
		"    endpoint: https://pve.lan:8006\n" +
		"    tokenId: pulumi@pve!bench\n" +
		"    hosts: [" + strings.Join(hosts, ", ") + "]\n"

	text := common

	switch r.Kind {
	case plan.KindK3s:
		text += "    ssh: { username: root }\n" +
			"  talos-proxmox:cluster: { name: bench, kind: k3s, versions: { k3s: v1.34.2+k3s1 } }\n" +
			"  talos-proxmox:image: { template: { control: ubuntu-24.04, worker: ubuntu-24.04 } }\n" +
			"  talos-proxmox:k3s: { generateSSHKey: true }\n" +
			"  talos-proxmox:pools:\n" +
			"    server: { role: controlplane, count: 1, addresses: 10.0.1.1-9 }\n" +
			fmt.Sprintf("    agent: { role: worker, count: %d, addresses: 10.0.2.1-250 }\n", r.Nodes-1)
	default:
		text += "  talos-proxmox:cluster: { name: bench, ha: true, versions: { talos: v1.12.4, kubernetes: v1.34.2 } }\n" +
			"  talos-proxmox:pools:\n" +
			"    control: { role: controlplane, count: 3, vmids: 401-449, addresses: 10.0.1.1-9 }\n" +
			fmt.Sprintf("    worker: { role: worker, count: %d, vmids: 501-799, addresses: 10.0.2.1-250 }\n", r.Nodes-3)
	}

	path := filepath.Join(dir, "Pulumi.bench.yaml")

	return path, os.WriteFile(path, []byte(text), 0o600)
}
