package planner

import (
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// enrollingDisks is the minor version of Talos from which disk images, too, bring the keys that the firmware of a new
// VM is to trust. ISO files always have.
const enrollingDisks = 14

// checkSecureBoot holds what SecureBoot asks of VMs and of images.
func (r *resolver) checkSecureBoot(p *plan.Plan) {
	if r.IsK3s() {
		return // the key is refused
	}

	for _, pool := range r.pools {
		image := pool.planned.Image
		if !image.SecureBoot {
			continue
		}

		if slices.ContainsFunc(pool.planned.Nodes, func(n plan.Node) bool { return n.Firmware == "seabios" }) {
			r.Problems.Add(pool.path+".firmware", "must be ovmf with "+secureBootKey(pool)+": seabios boots no image for it",
				"seabios", "set it to ovmf, here or in defaults")
		}

		if image.FactoryURL != "" && image.Format == spec.FormatDisk && plan.Minor(p.Talos) < enrollingDisks {
			r.addProblemOnce("image.factory.format",
				"cannot be disk with "+secureBootKey(pool)+" before Talos 1.14: the disk images "+
					"of Talos "+strings.TrimPrefix(p.Talos, "v")+" do not enroll the keys of SecureBoot", string(image.Format),
				"use iso")
		}
	}
}

// secureBootKey is the key that decides whether the image of a pool is for SecureBoot.
func secureBootKey(p *pool) string {
	if p.Image.SecureBoot != nil {
		return p.path + ".image.secureBoot"
	}

	return "image.secureBoot"
}

// checkEncryption: a key that a TPM keeps needs one, in a machine that Talos has booted with SecureBoot.
func (r *resolver) checkEncryption(p *plan.Plan) {
	e := r.Spec.Cluster.Encryption
	p.Encryption = e

	if e == "" || !checks.OneOf(&r.Problems, "cluster.encryption", e, spec.EncryptionNodeID, spec.EncryptionTPM) ||
		e != spec.EncryptionTPM {
		return
	}

	for _, pool := range r.pools {
		if !pool.planned.Image.SecureBoot {
			r.addProblemOnce(secureBootKey(pool),
				`is required with cluster.encryption "tpm": Talos seals keys only when it was booted `+
					"with SecureBoot", "false", "set it to true, with images for SecureBoot, or use nodeID")
		}

		if slices.ContainsFunc(pool.planned.Nodes, func(n plan.Node) bool { return !n.TPM }) {
			r.Problems.Add(pool.path+".tpm", `is required with cluster.encryption "tpm"`, "false",
				"set it to true, here or in defaults")
		}
	}
}
