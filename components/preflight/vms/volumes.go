package vms

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

var (
	diskPosition = regexp.MustCompile(`^(scsi|virtio|sata|ide)\d+$`)
	// volumeOwner is in the name of a volume: local-lvm:vm-9999-pvc-…, or nfs:9999/vm-9999-pvc-….raw.
	volumeOwner = regexp.MustCompile(`[:/]vm-(\d+)-`)
)

// foreignVolumes are the disks of a VM that another VMID owns, such as those that Proxmox CSI attaches, by their
// datastore.
func foreignVolumes(vmid int, settings map[string]string) map[string][]string {
	found := map[string][]string{}

	for key, value := range settings {
		volume, options, _ := strings.Cut(value, ",")
		datastore, _, _ := strings.Cut(volume, ":")

		if m := volumeOwner.FindStringSubmatch(volume); m != nil && m[1] != strconv.Itoa(vmid) &&
			diskPosition.MatchString(key) && !strings.Contains(options, "media=cdrom") {
			found[datastore] = append(found[datastore], key+" "+volume)
		}
	}

	return found
}

// checkMoves: Proxmox VE does not migrate a VM with a local disk of another VMID. On shared datastores, such a disk
// stays attached.
func (c *Checker) checkMoves(ctx context.Context, nodes []plan.Node, vms []proxmoxapi.VM,
	settings []*proxmoxapi.Settings,
) error {
	if !c.Plan.Rebalance {
		return nil
	}

	var shared map[string]bool

	for i, n := range nodes {
		if settings[i] == nil || vms[i].Host == n.Host || c.Plan.Replaces(n.Name) {
			continue
		}

		foreign := foreignVolumes(n.VMID, settings[i].Current)
		if len(foreign) == 0 {
			continue
		}

		if shared == nil {
			var err error
			if shared, err = c.Proxmox.SharedStores(ctx); err != nil {
				return err
			}
		}

		var remaining, follow []string

		for datastore, volumes := range foreign {
			if shared[datastore] {
				follow = append(follow, volumes...)
			} else {
				remaining = append(remaining, volumes...)
			}
		}

		slices.Sort(remaining)
		slices.Sort(follow)

		rule := fmt.Sprintf("moves %s from host %s to %s, but disks that do not belong to it are attached", n.Name,
			vms[i].Host, n.Host)

		if len(remaining) > 0 {
			c.Problems.Add("placement.rebalance", rule+": Proxmox VE does not migrate local ones", strings.Join(remaining, ", "),
				"drain the node first, so that Proxmox CSI detaches them and its pods run elsewhere; or leave "+
					"rebalance out")
		}

		if len(follow) > 0 {
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: "placement.rebalance", Rule: rule + ": they move with it", Value: strings.Join(follow, ", "),
				Remedy: "check their pods afterwards",
			})
		}
	}

	return nil
}
