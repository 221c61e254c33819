package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/rehearsal"
)

// Row is one cluster that is measured, or several of them at the same time.
type Row struct {
	Kind  spec.Distribution `json:"kind"`
	Nodes int               `json:"nodes"`
	Hosts int               `json:"hosts"`
	// Clusters are made at the same time, each on a Proxmox VE of its own.
	Clusters int `json:"clusters"`
	// Plain leaves out what speed.md advises: pulumi runs without any setting.
	Plain bool `json:"plain,omitempty"`
}

// String names the row: "talos-5x1" is five nodes on one host.
func (r Row) String() string {
	name := fmt.Sprintf("%s-%dx%d", r.Kind, r.Nodes, r.Hosts)
	if r.Clusters > 1 {
		name = fmt.Sprintf("%dx-%s", r.Clusters, name)
	}

	if r.Plain {
		name = "plain-" + name
	}

	return name
}

// rows are all that is measured, the quick ones first.
func rows() []Row {
	k3s := Row{Kind: spec.DistributionK3s, Nodes: 2, Hosts: 1, Clusters: 1}
	two := k3s
	two.Clusters = 2
	all := []Row{k3s, two}

	for _, nodes := range []int{5, 20, 50, 200} {
		for _, hosts := range []int{1, 3, 10} {
			all = append(all, Row{Kind: spec.DistributionTalos, Nodes: nodes, Hosts: hosts, Clusters: 1})
		}

		all = append(all, Row{Kind: spec.DistributionTalos, Nodes: nodes, Hosts: 1, Clusters: 1, Plain: true})
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

// oneHost says whether the row is a cluster of Talos on one host, with the settings of speed.md.
func (r Row) oneHost() bool {
	return r.Kind == spec.DistributionTalos && r.Hosts == 1 && r.Clusters == 1 && !r.Plain
}

// compared says whether the row is made with Terraform, too.
func (r Row) compared() bool { return r.oneHost() && slices.Contains([]int{5, 50, 200}, r.Nodes) }

// stack is what a row measures: the example of K3s, and of Talos what the shortest stack file has, at the row's size.
// It is written into a directory.
func (r Row) stack(root, dir string) (*rehearsal.Stack, error) {
	if r.Kind == spec.DistributionK3s {
		return rehearsal.Find(root, "k3s")
	}

	hosts := make([]string, r.Hosts)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("{ name: pve%d }", i+1)
	}

	path := filepath.Join(dir, "Pulumi.bench.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, shape, strings.Join(hosts, ", "), r.Nodes-3), 0o600); err != nil {
		return nil, err
	}

	return rehearsal.ReadStack(path)
}

const shape = `config:
  talos-proxmox:proxmox: { endpoint: https://pve.lan:8006, tokenId: pulumi@pve!talos, hosts: [%s] }
  talos-proxmox:cluster: { name: bench, ha: true, versions: { talos: v1.12.4, kubernetes: v1.34.2 } }
  talos-proxmox:network: { cidr: 10.0.0.0/16, gateway: 10.0.0.1 }
  talos-proxmox:pools:
    control: { role: controlplane, count: 3, addresses: 10.0.1.1-9 }
    worker: { role: worker, count: %d, vmids: 501-799, addresses: 10.0.2.1-250 }
`
