package config

import (
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Planned is a cluster of a program: its configuration, and the plan of it.
type Planned struct {
	Config Config
	Plan   *plan.Plan
}

// OfCluster returns problems with the name of the cluster in their paths, for a program that has several.
func OfCluster(cluster string, found spec.Problems) spec.Problems {
	found = slices.Clone(found)
	for i := range found {
		found[i].Path = "cluster " + cluster + ": " + found[i].Path
	}

	return found
}

// CheckDisjoint refuses what clusters of one program share and must not: names, directories of files and, on the same
// Proxmox VE, VMIDs, MAC addresses, addresses and, of K3s, the names of nodes, by which their user data is stored.
// Nothing else can show it: none of them may exist yet.
func CheckDisjoint(clusters []Planned) spec.Problems {
	var problems spec.Problems

	owners, reported := map[string]string{}, map[string]bool{}
	claim := func(path, rule, value, owner string) {
		other, taken := owners[rule+value]

		switch {
		case !taken:
			owners[rule+value] = owner
		case !reported[path]:
			reported[path] = true

			problems.Add(path, "clashes with cluster "+other+" of this program", value, "choose another one for either")
		}
	}

	for _, c := range clusters {
		p := c.Plan
		path, proxmox := "cluster "+p.Cluster+": ", server(c.Config.Proxmox.Endpoint)
		claim(path+"cluster.name", "name", p.Cluster, p.Cluster)

		if f := p.Outputs.Files; f != nil {
			claim(path+"outputs.files.dir", c.Config.Dir+" directory ", filepath.Clean(f.Dir), p.Cluster)
		}

		for _, n := range p.Nodes() {
			pool := path + "pools." + n.Pool
			claim(pool+".vmids", proxmox+" VMID ", strconv.Itoa(n.VMID), p.Cluster)

			for _, nic := range n.NICs {
				claim(pool+".mac", proxmox+" MAC ", nic.MAC, p.Cluster)
			}

			if p.K3s != nil {
				claim(pool+".names", proxmox+" user data ", n.Name, p.Cluster)
			}

			if n.Address.IsValid() {
				claim(pool+".addresses", proxmox+" address ", n.Address.String(), p.Cluster)
			}
		}

		if p.VIP.IsValid() {
			claim(path+"cluster.endpoint.address", proxmox+" address ", p.VIP.String(), p.Cluster)
		}
	}

	return problems
}

// server is the host and port of an endpoint, which may be written in several ways.
func server(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}

	return strings.ToLower(u.Host)
}
