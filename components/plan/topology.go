package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/components/spec"
)

// ProviderID is what Kubernetes calls the machine of a node; empty without a region. K3s has one of its own.
func (p *Plan) ProviderID(n Node) string {
	if p.Region == "" || p.Distribution == spec.DistributionK3s {
		return ""
	}

	return fmt.Sprintf("proxmox://%s/%d", p.Region, n.VMID)
}

// Topology are the labels of a node that say where its VM is; none without a region.
func (p *Plan) Topology(host string) map[string]string {
	if p.Region == "" {
		return nil
	}

	return map[string]string{corev1.LabelTopologyRegion: p.Region, corev1.LabelTopologyZone: host}
}
