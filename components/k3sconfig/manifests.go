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
		files = append(files, cloudinit.File{
			Path: manifestsDir + fmt.Sprintf("cluster-%d.yaml", i+1), Permissions: "0600", Content: m.Text,
		})
	}

	if secret != "" {
		files = append(files, cloudinit.File{Path: manifestsDir + "cluster-secrets.yaml", Permissions: "0600", Content: secret})
	}

	return files
}
