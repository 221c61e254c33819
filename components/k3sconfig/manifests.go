package k3sconfig

import (
	"fmt"

	"talos-proxmox/components/cloudinit"
	"talos-proxmox/components/plan"
)

// manifestsDir is where servers deploy files from, when they start and when a file changes (K3s: Auto-Deploying
// Manifests).
const manifestsDir = "/var/lib/rancher/k3s/server/manifests/"

// deployed are the manifests that a server deploys. All servers have the same, so that none takes back what another has
// deployed.
func deployed(p *plan.Plan, secret string) []cloudinit.File {
	var files []cloudinit.File

	for i, m := range p.Manifests {
		files = append(files, manifestFile(fmt.Sprintf("cluster-%d", i+1), m.Text))
	}

	if secret != "" {
		files = append(files, manifestFile("cluster-secrets", secret))
	}

	return files
}

func manifestFile(name, text string) cloudinit.File {
	return cloudinit.File{Path: manifestsDir + name + ".yaml", Permissions: "0600", Content: text}
}
